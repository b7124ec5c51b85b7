"""The turns of bare completions.

A prompt goes to the model as it is given: text through the tokenizer with control tokens read as such, ids untouched.
Nobody knows what conversation it is, so its turns are side turns: stored with prompt ids and answer, never learnt from,
followed by nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from clawd.errors import ContextOverflow
from clawd.model.replies.parser import PlainText
from clawd.server.engine.types import GenerationRequest
from clawd.server.errors import ApiError
from clawd.server.exchange import Accepted, priority_of, record
from clawd.server.openai_completions.schema import MAX_TOKENS, CompletionRequest
from clawd.server.services import Services
from clawd.server.sessions.identity import Clues, find_session, session_name
from clawd.server.sessions.place import Placement
from clawd.server.versions import Target
from clawd.store.codec import content_hash, pack_json
from clawd.store.records import NewTurn, User

EVIDENCE = "completion"
"""Kind and session of such a turn are known from the route alone."""


@dataclass(frozen=True)
class Prompt:
    text: str  # as given; of ids what they say, control tokens included
    ids: tuple[int, ...]


def accept_completion(
    services: Services, user: User, headers: Mapping[str, str], asked: CompletionRequest
) -> tuple[list[Prompt], list[Accepted]]:
    """The prompts, and `n` turns for each, one prompt after the other. Blocking: run it in a thread.

    Raises:
        ApiError, NotAllowed, NameRefused: the request asks for what can't be; nothing is recorded.
        ContextOverflow: a prompt doesn't fit; nothing has been read by the model, of none of them.
    """
    target = services.versions.resolve(user, asked.model)
    asked.check_token_ids(services.vocabulary.size)
    prompts = [_prompt(services, prompt) for prompt in asked.prompts()]
    placement = _place(services, user, headers)
    accepted = [_accept_one(services, user, headers, asked, target, placement, prompt) for prompt in prompts]
    return prompts, list(chain.from_iterable(accepted))


def _prompt(services: Services, given: str | list[int]) -> Prompt:
    vocabulary = services.vocabulary
    if isinstance(given, str):
        prompt = Prompt(given, tuple(services.renderer.tokenise(given)))
    else:
        unknown = next((token for token in given if not 0 <= token < vocabulary.size), None)
        if unknown is not None:
            raise ApiError(
                400,
                f"prompt: there is no token {unknown}: this model's ids go from 0 to {vocabulary.size - 1}.",
                code="invalid_value",
                param="prompt",
            )
        prompt = Prompt(vocabulary.text(given, special=True), tuple(given))
    if not prompt.ids:
        raise ApiError(400, "prompt: it has no token to go on from.", code="invalid_value", param="prompt")
    if len(prompt.ids) >= services.engine.context:
        raise ContextOverflow(len(prompt.ids), services.engine.context)
    return prompt


def _place(services: Services, user: User, headers: Mapping[str, str]) -> Placement:
    """In the session that the client names; otherwise in one of the request's own, which ends with it."""
    named = session_name(headers, None, [])
    if named is None:
        session = services.store.sessions.open(user.id, None, EVIDENCE)
    else:
        session = find_session(services.store, user.id, named, Clues("side", None, None, []))
    return Placement(session, "side", EVIDENCE, is_last=named is None, previous=None, next_state=[])


def _accept_one(
    services: Services,
    user: User,
    headers: Mapping[str, str],
    asked: CompletionRequest,
    target: Target,
    placement: Placement,
    prompt: Prompt,
) -> list[Accepted]:
    new = NewTurn(
        session_id=placement.session.id,
        user_id=user.id,
        adapter_id=target.adapter.id if target.adapter else None,
        version_id=target.version.id if target.version else None,
        base_fingerprint=services.versions.base_fingerprint,
        kind=placement.kind,
        kind_evidence=placement.kind_evidence,
        prompt_ids=prompt.ids,
        messages=[],
        request_hash=content_hash(pack_json([EVIDENCE, asked.model, prompt.ids])),
        parameters={"model": asked.model, "stop": list(asked.stops())},
    )
    generation = GenerationRequest(
        id="",
        prompt_ids=prompt.ids,
        max_new_tokens=asked.max_tokens or MAX_TOKENS,
        version=target.version,
        sampling=asked.sampling(services.settings.server),
        stop=asked.stops(),
        shown_tokens=services.replies.shown_tokens(None),
        priority=priority_of(headers),
        owner=user.id,
    )
    generations = record(services.store, new, generation, asked.n or 1)
    return [Accepted(each.id, placement, target, [], each, PlainText, len(generations)) for each in generations]
