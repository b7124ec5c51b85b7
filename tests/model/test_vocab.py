from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.errors import ModelError, TemplateError
from clawd.model.prompt import PromptRenderer
from clawd.model.template import ChatTemplate
from clawd.model.vocab import TextDecoder, Vocabulary


@pytest.fixture(scope="module")
def vocabulary(embedded_model: Path) -> Iterator[Vocabulary]:
    with Vocabulary.open(embedded_model) as opened:
        yield opened


def test_the_embedded_model_describes_itself(vocabulary: Vocabulary) -> None:
    info = vocabulary.info
    assert (info.architecture, info.trained_context, info.vocab_size) == ("llama", 8192, 49152)
    assert (info.n_embd, info.n_layers, info.n_params) == (576, 30, 134_515_008)
    assert (info.bos, info.eos) == ("<|im_start|>", "<|im_end|>")
    assert info.chat_template is not None and "<|im_start|>" in info.chat_template
    assert info.file_size == info.path.stat().st_size


def test_text_survives_the_way_to_ids_and_back(vocabulary: Vocabulary) -> None:
    for text in ("Hello, world", "  two  spaces\n\n", "naïve 🙂 日本語", ""):
        assert vocabulary.text(vocabulary.tokenise(text)) == text


def test_control_tokens_are_parsed_only_when_asked_for(vocabulary: Vocabulary) -> None:
    assert vocabulary.tokenise("<|im_end|>", parse_special=True) == [vocabulary.eos_id]
    plain = vocabulary.tokenise("<|im_end|>")
    assert len(plain) > 1
    assert vocabulary.text(plain) == "<|im_end|>"


def test_control_tokens_are_shown_only_when_asked_for(vocabulary: Vocabulary) -> None:
    assert vocabulary.eos_id is not None
    assert vocabulary.is_end(vocabulary.eos_id)
    assert not vocabulary.is_end(vocabulary.tokenise("a")[0])
    assert vocabulary.token_bytes(vocabulary.eos_id) == b""
    assert vocabulary.token_bytes(vocabulary.eos_id, special=True) == b"<|im_end|>"


def test_a_token_outside_of_the_vocabulary_is_refused(vocabulary: Vocabulary) -> None:
    for token in (-1, vocabulary.size):
        with pytest.raises(ModelError, match="outside"):
            vocabulary.token_bytes(token)


def test_files_that_are_no_model_are_refused_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model file"):
        Vocabulary.open(tmp_path / "missing.gguf")
    (tmp_path / "junk.gguf").write_bytes(b"GGUFjunk" * 100)
    with pytest.raises(ModelError, match=r"can't be loaded \(.*\w.*\)"):
        Vocabulary.open(tmp_path / "junk.gguf")


def test_the_decoder_holds_back_unfinished_characters() -> None:
    decoder = TextDecoder()
    data = "é🙂".encode()
    assert [decoder.feed(data[i : i + 1]) for i in range(len(data))] == ["", "é", "", "", "", "🙂"]
    assert decoder.feed(data[:1]) == ""
    assert decoder.finish() == "\ufffd"


def test_prompts_are_rendered_and_tokenised_as_the_template_says(vocabulary: Vocabulary) -> None:
    renderer = PromptRenderer.of(vocabulary)
    ids = renderer.prompt_ids([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])
    assert vocabulary.text(ids, special=True) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ids[0] == vocabulary.bos_id  # <|im_start|> as one token


@pytest.mark.parametrize("source", ["{{ messages[0].content }}", "{{ bos_token }}{{ messages[0].content }}"])
def test_bos_is_there_once_whoever_writes_it(vocabulary: Vocabulary, source: str) -> None:
    class AddsBos(Vocabulary):
        """A vocabulary whose model wants BOS first."""

        def __init__(self, other: Vocabulary) -> None:
            self.__dict__.update(other.__dict__, adds_bos=True, _owns_model=False)

    renderer = PromptRenderer(AddsBos(vocabulary), ChatTemplate(source, vocabulary.info.bos, vocabulary.info.eos))
    assert renderer.prompt_ids([{"role": "user", "content": "Hi"}]) == [vocabulary.bos_id, *vocabulary.tokenise("Hi")]


def test_a_model_without_a_template_is_refused(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Vocabulary.open(tiny_model) as tiny:
        assert PromptRenderer.of(tiny).prompt_ids([{"role": "user", "content": "hello"}])[0] == 1
        object.__setattr__(tiny.info, "chat_template", None)
        with pytest.raises(TemplateError, match="no chat template"):
            PromptRenderer.of(tiny)
