"""`POST /v1/completions`: prompts as text and as ids, exactly as given; shapes, limits, and what is stored."""

from __future__ import annotations

import json
import math

import httpx
import openai
import pytest

from clawd.server.openai_completions.schema import MAX_LOGPROBS, MAX_TOTAL
from tests.server.live import Live
from tests.server.test_chat import chunks_of

PROMPT = "The capital of France is"


def complete(live: Live, prompt: object = PROMPT, headers: dict | None = None, **more: object) -> httpx.Response:
    body = {"model": "clawd", "prompt": prompt, "temperature": 0, "max_tokens": 8, **more}
    return live.http.post("/v1/completions", json=body, headers=headers or {})


def turn(live: Live, response_id: str):
    return live.store.turns.get(response_id.removeprefix("cmpl-"))


def test_the_openai_client_gets_a_completion_and_the_store_has_it(live: Live) -> None:
    completion = live.openai().completions.create(model="clawd", prompt=PROMPT, temperature=0)
    (choice,) = completion.choices
    assert choice.text and choice.finish_reason == "length"
    assert completion.object == "text_completion"
    usage = completion.usage
    assert usage is not None and usage.completion_tokens == 16  # the API's own default
    assert completion.system_fingerprint is not None and completion.system_fingerprint.endswith("-base")
    stored = turn(live, completion.id)
    assert stored.prompt_ids == live.services.renderer.tokenise(PROMPT)
    assert stored.response_text == choice.text
    assert len(stored.response_ids) == len(stored.logprobs) == 16
    assert (stored.kind, stored.state, stored.reason) == ("side", "discarded", "side turn")
    session = live.store.sessions.get(stored.session_id)
    assert session is not None and session.evidence == "completion"
    described = live.http.get(f"/clawd/v1/turns/{completion.id}").json()
    assert described["response"] == choice.text


def test_ids_go_to_the_model_exactly_as_given(live: Live) -> None:
    vocabulary = live.services.vocabulary
    text = complete(live).json()["choices"][0]["text"]
    ids = vocabulary.tokenise(PROMPT)
    assert complete(live, ids).json()["choices"][0]["text"] == text
    odd = [token for character in PROMPT for token in vocabulary.tokenise(character)]  # what no tokenizer would give
    assert odd != ids
    reply = complete(live, odd).json()
    assert turn(live, reply["id"]).prompt_ids == odd
    assert reply["usage"]["prompt_tokens"] == len(odd)


def test_a_text_that_somebody_rendered_has_its_control_tokens(live: Live) -> None:
    rendered = "<|im_start|>user\nAnswer with one word: what colour is grass?<|im_end|>\n<|im_start|>assistant\n"
    reply = complete(live, rendered, max_tokens=40).json()
    assert reply["choices"][0]["finish_reason"] == "stop"
    assert turn(live, reply["id"]).prompt_ids.count(live.services.vocabulary.eos_id) == 1


@pytest.mark.parametrize("as_ids", [False, True])
def test_several_prompts_with_n_each_come_prompt_by_prompt(live: Live, as_ids: bool) -> None:
    texts = ["Once upon a time", "Water boils at", "Two and two"]
    tokenise = live.services.renderer.tokenise
    prompts = [tokenise(text) for text in texts] if as_ids else texts
    reply = complete(live, prompts, n=2, temperature=1.0, seed=3, max_tokens=5).json()
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2, 3, 4, 5]
    assert reply["usage"]["prompt_tokens"] == sum(len(tokenise(text)) for text in texts)
    assert reply["usage"]["completion_tokens"] == 6 * 5
    stored = turn(live, reply["id"])
    ids = live.store.turns.ids_of_session(stored.session_id)
    assert [live.store.turns.get(i).prompt_ids for i in ids] == [tokenise(text) for text in texts for _ in range(2)]
    assert [live.store.turns.get(i).response_text for i in ids] == [choice["text"] for choice in reply["choices"]]
    assert live.store.verify() == []


def test_a_stream_says_the_same_and_tells_usage_if_asked(live: Live) -> None:
    whole = complete(live, [PROMPT, "Water boils at"]).json()
    chunks = chunks_of(complete(live, [PROMPT, "Water boils at"], stream=True, stream_options={"include_usage": True}))
    texts, ends = ["", ""], ["", ""]
    for chunk in chunks[:-1]:
        (choice,) = chunk["choices"]
        texts[choice["index"]] += choice["text"]
        ends[choice["index"]] += choice["finish_reason"] or ""
    assert texts == [choice["text"] for choice in whole["choices"]]
    assert ends == ["length", "length"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == whole["usage"]["total_tokens"]
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    parts = list(
        live.openai().completions.create(model="clawd", prompt=PROMPT, temperature=0, max_tokens=8, stream=True)
    )
    assert "".join(part.choices[0].text for part in parts) == whole["choices"][0]["text"]


@pytest.mark.parametrize("stream", [False, True])
def test_echo_puts_the_prompt_in_front(live: Live, stream: bool) -> None:
    said = complete(live).json()["choices"][0]["text"]
    ids = [
        *live.services.vocabulary.tokenise("<|im_start|>", parse_special=True),
        *live.services.vocabulary.tokenise("x"),
    ]
    for prompt, text in ((PROMPT, PROMPT + said), (ids, None)):
        reply = complete(live, prompt, echo=True, stream=stream)
        if stream:
            whole = "".join(chunk["choices"][0]["text"] for chunk in chunks_of(reply))
        else:
            whole = reply.json()["choices"][0]["text"]
        assert whole == text if text else whole.startswith("<|im_start|>x")


def test_log_probabilities_have_this_apis_own_shape(live: Live) -> None:
    reply = complete(live, "naïve 😀 😀", logprobs=3, temperature=1.0, seed=5, max_tokens=12).json()
    scores = reply["choices"][0]["logprobs"]
    stored = turn(live, reply["id"])
    assert scores["token_logprobs"] == pytest.approx(stored.logprobs, abs=1e-6)
    assert len(scores["tokens"]) == len(scores["top_logprobs"]) == len(scores["text_offset"]) == 12
    text = reply["choices"][0]["text"]
    for token, logprob, top, offset in zip(
        *(scores[key] for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset")), strict=True
    ):
        assert top[token] == logprob and 3 <= len(top) <= 4
        assert sum(math.exp(value) for value in top.values()) <= 1 + 1e-6
        assert token.startswith("bytes:") or text[offset : offset + len(token)] == token
    streamed = chunks_of(complete(live, "naïve 😀 😀", logprobs=3, temperature=1.0, seed=5, max_tokens=12, stream=True))
    joined = {
        key: [item for c in streamed if c["choices"][0]["logprobs"] for item in c["choices"][0]["logprobs"][key]]
        for key in ("tokens", "text_offset")
    }
    assert joined["tokens"] == scores["tokens"] and joined["text_offset"] == scores["text_offset"]
    alone = complete(live, logprobs=0).json()["choices"][0]["logprobs"]
    assert all(list(top) == [token] for top, token in zip(alone["top_logprobs"], alone["tokens"], strict=True))


def test_stop_strings_and_seeds_work_as_in_chats(live: Live) -> None:
    whole = complete(live, max_tokens=30).json()["choices"][0]["text"]
    stop = whole[len(whole) // 2 :][:5]
    reply = complete(live, max_tokens=30, stop=["never there", stop]).json()["choices"][0]
    assert (reply["text"], reply["finish_reason"]) == (whole[: whole.index(stop)], "stop")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"prompt": None}, 400, "invalid_value"),
        ({"prompt": []}, 400, "invalid_value"),
        ({"prompt": ""}, 400, "invalid_value"),
        ({"prompt": [[]]}, 400, "invalid_value"),
        ({"prompt": [1, "a"]}, 400, "invalid_value"),
        ({"prompt": [[1], "a"]}, 400, "invalid_value"),
        ({"prompt": [True]}, 400, "invalid_value"),
        ({"prompt": [1.5]}, 400, "invalid_value"),
        ({"prompt": [-1]}, 400, "invalid_value"),
        ({"prompt": [10**9]}, 400, "invalid_value"),
        ({"prompt": [2**70]}, 400, "invalid_value"),
        ({"prompt": ["a"] * (MAX_TOTAL + 1)}, 400, "invalid_value"),
        ({"prompt": ["a"] * MAX_TOTAL, "n": 2}, 400, "invalid_value"),
        ({"prompt": "word " * 9000}, 400, "context_length_exceeded"),
        ({"suffix": "the end"}, 400, "invalid_value"),
        ({"best_of": 3}, 400, "invalid_value"),
        ({"echo": True, "logprobs": 1}, 400, "invalid_value"),
        ({"logprobs": MAX_LOGPROBS + 1}, 400, "invalid_value"),
        ({"max_tokens": 0}, 400, "invalid_value"),
        ({"n": 0}, 400, "invalid_value"),
        ({"temperature": 3}, 400, "invalid_value"),
        ({"model": "gpt-9"}, 404, "model_not_found"),
    ],
)
def test_what_cannot_be_is_told_and_not_recorded(live: Live, change: dict, status: int, code: str) -> None:
    before = live.store.turns.count_side()
    reply = complete(live, **{"prompt": PROMPT, **change})
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (status, code)
    assert live.store.turns.count_side() == before


def test_what_asks_for_nothing_special_is_let_pass_and_unknown_fields_are_counted(live: Live) -> None:
    reply = complete(live, suffix="", best_of=1, echo=None, logprobs=None, stop=None, user="u", completions_extra=1)
    assert reply.status_code == 200
    assert complete(live, n=2, best_of=2).status_code == 200
    assert "completions_extra" in live.http.get("/clawd/v1/status").json()["ignored_fields"]
    with pytest.raises(openai.BadRequestError, match="suffix"):
        live.openai().completions.create(model="clawd", prompt=PROMPT, suffix="x")


def test_a_named_session_holds_them_and_its_conversation_is_not_touched(live: Live) -> None:
    headers = {"X-Session-Id": "with completions"}
    asked = live.chat("Name a bird.", headers=headers).json()
    reply = complete(live, headers=headers).json()
    assert turn(live, reply["id"]).session_id == live.turn(asked["id"]).session_id
    assert live.turn(asked["id"]).state == "waiting"
    said = asked["choices"][0]["message"]["content"]
    messages = [{"role": "user", "content": "Name a bird."}, {"role": "assistant", "content": said}]
    live.chat([*messages, {"role": "user", "content": "A larger one."}], headers=headers)
    assert live.turn(asked["id"]).next_state == [{"role": "user", "content": "A larger one."}]
    assert turn(live, reply["id"]).state == "discarded"


def test_when_the_client_goes_every_completion_ends_and_what_there_is_is_kept(live: Live) -> None:
    body = {"model": "clawd", "prompt": [PROMPT, "Water"], "n": 2, "max_tokens": 2000, "stream": True}
    with httpx.stream("POST", f"{live.url}/v1/completions", json=body, timeout=60) as reply:
        for line in reply.iter_lines():
            chunk = json.loads(line.removeprefix("data: ")) if line.startswith("data: {") else None
            if chunk and chunk["choices"][0]["text"]:
                break
    assert live.wait_until_idle(2) and live.settled()
    ids = live.store.turns.ids_of_session(turn(live, chunk["id"]).session_id)
    assert [live.store.turns.get(i).reason for i in ids] == ["aborted"] * 4
    assert any(live.store.turns.get(i).response_ids for i in ids)


def test_foreign_hosts_get_none(live: Live) -> None:
    assert complete(live, headers={"Host": "evil.example"}).status_code == 403
