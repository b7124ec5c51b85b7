"""What a request wants its answer to look like, as a constraint for the engine.

A tool list under `auto` is never compiled, so that no schema in it can fail the request. Under a forced call, what
can't be enforced of a tool's schema is left out, at worst all of it but that arguments are an object: logged and
counted. A `response_format` is a promise: what of it can't be kept is refused, or, for a client that doesn't ask for
strictness, left out.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

from clawd.errors import SchemaRefused
from clawd.model.replies.families import ReplyFormat
from clawd.model.replies.forms import FREE_OBJECT, ForcedTool, Json
from clawd.server.engine.constraint import Compiler, Grammar
from clawd.server.errors import ApiError
from clawd.server.openai_chat.schema import ChatRequest, ResponseFormat, Tool

log = logging.getLogger(__name__)


class Structure:
    """Safe to use from several threads. Compiles: not for the event loop."""

    def __init__(self, replies: ReplyFormat, compiler: Compiler) -> None:
        self._replies = replies
        self._compiler = compiler
        self._counting = threading.Lock()
        self.loosened: Counter[str] = Counter()  # schemas that aren't enforced as they stand: "partly", "not at all"

    def constraint(self, chat: ChatRequest, prompt_ids: Sequence[int]) -> Grammar | None:
        """None: the answer is free.

        Raises:
            ApiError: 400, the request asks for a form that can't be enforced.
        """
        parallel = not chat.one_call_at_most()
        if chat.constrained_by() == "tool_choice":
            return self._forced(chat.forced_tools(), prompt_ids, parallel)
        wanted = chat.response_format
        if wanted is None or wanted.type == "text":
            return None
        free = [ForcedTool(tool["function"]["name"], Json(FREE_OBJECT)) for tool in chat.offered_tools() or []]
        try:
            content = self._content(wanted)
            return self._compiler.compile(self._replies.formed_answer(content, free, prompt_ids, parallel=parallel))
        except SchemaRefused as error:
            raise ApiError(
                400,
                f"response_format: this can't be enforced: {error}.",
                code="unsupported_schema",
                param="response_format",
            ) from None
        except ValueError as error:
            raise _bad_name(error) from None

    def _content(self, wanted: ResponseFormat) -> Json:
        if wanted.type == "json_object" or wanted.json_schema is None:
            return Json(FREE_OBJECT)
        exact = _json(wanted.json_schema.schema_)
        if wanted.json_schema.strict:
            return exact
        return self._enforceable(exact, "the schema of a response_format")

    def _forced(self, tools: Sequence[Tool], prompt_ids: Sequence[int], parallel: bool) -> Grammar:
        try:
            exact = [self._forced_tool(tool) for tool in tools]
            try:
                return self._compiler.compile(self._replies.forced_calls(exact, prompt_ids, parallel=parallel))
            except SchemaRefused as error:
                self._tell("not at all", f"the schemas of {len(exact)} tools together", error)
            free = [ForcedTool(tool.name, Json(FREE_OBJECT)) for tool in exact]
            return self._compiler.compile(self._replies.forced_calls(free, prompt_ids, parallel=parallel))
        except SchemaRefused as error:  # not for its schemas: the model can't end an answer, say
            raise ApiError(
                400, f"tool_choice: a call can't be forced: {error}.", code="unsupported_value", param="tool_choice"
            ) from None
        except ValueError as error:
            raise _bad_name(error) from None

    def _forced_tool(self, tool: Tool) -> ForcedTool:
        name, parameters = tool["function"]["name"], tool["function"].get("parameters")
        if not isinstance(parameters, dict) or not parameters:
            return ForcedTool(name, Json(FREE_OBJECT))
        try:
            exact = _json({**parameters, "type": "object"})
            arguments = self._enforceable(exact, f"the schema of tool {name}")
        except SchemaRefused as error:
            self._tell("not at all", f"the schema of tool {name}", error)
            return ForcedTool(name, Json(FREE_OBJECT))
        return ForcedTool(name, arguments, parameters)

    def _enforceable(self, exact: Json, what: str) -> Json:
        """As much of a schema as can be enforced.

        Raises:
            SchemaRefused: nothing of it.
        """
        try:
            self._compiler.compile(exact)
        except SchemaRefused as error:
            loose = Json(exact.schema, lenient=True)
            self._compiler.compile(loose)
            self._tell("partly", what, error)
            return loose
        return exact

    def _tell(self, how: str, what: str, error: SchemaRefused) -> None:
        with self._counting:
            self.loosened[how] += 1
        log.warning("%s is enforced %s: %s", what, how, error)


def _json(schema: Any) -> Json:
    try:
        return Json.of(schema)
    except RecursionError:
        raise SchemaRefused("it nests too deeply") from None


def _bad_name(error: ValueError) -> ApiError:
    return ApiError(
        400,
        f"tools: a call of this model can't hold the name {json.dumps(str(error))}: use letters, digits, `_` and `-`.",
        code="invalid_value",
        param="tools",
    )
