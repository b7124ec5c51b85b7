"""Which tool results are clear failures, by name. What is only suspicious is none: 0, not -1."""

from __future__ import annotations

import json
import re
from typing import Any

FAILURES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern, re.IGNORECASE | re.MULTILINE))
    for name, pattern in (
        ("exit status", r"\bexit(?:ed)?(?: with)?(?: (?:code|status))(?: of)?\s*[:=]?\s*-?[1-9]\d*\b"),
        ("exit status", r"\breturned? (?:a )?non-?zero exit (?:code|status)"),
        (
            "traceback",
            r"^Traceback \(most recent call last\):\n(?s:.{0,8000})^\w[\w.]*(?:Error|Exception)\b[^\n]*\s*\Z",
        ),
        ("permission denied", r"^[^\n]{0,200}: (?:permission denied|operation not permitted)\.?\s*\Z"),
        ("command not found", r"^[^\n]{0,200}: (?:command )?not found\s*\Z"),
        ("no such file", r"^[^\n]{0,200}: no such file or directory\s*\Z|\A\s*ENOENT\b"),
        (
            "failed edit",
            r"\A\s*(?:error:? )?(?:old_?(?:str|string|text)|string to replace)[^\n]{0,80}(?:not found|no match)",
        ),
        (
            "failed edit",
            r"\A\s*(?:error:? )?(?:search (?:text|block)|the (?:text|string))[^\n]{0,80} (?:not|n't) (?:found|match)",
        ),
        (
            "failed edit",
            r"\A\s*(?:error:? )?(?:could not find the exact text|no match(?:es)? found for|hunk #\d+ failed)",
        ),
        ("failed edit", r"\A\s*(?:error:? )?(?:the )?(?:patch|edit) (?:failed|does not apply|could not be applied)"),
        ("error", r"\A\s*(?:\[?(?:error|fatal)\]?:|\w+(?:Error|Exception): )"),
    )
)


ENDS_READ = 6000  # characters: a failure is told at the beginning or at the end


def failure(text: str) -> str | None:
    """The name of the failure that a tool's result reports; none: it isn't clearly one."""
    fields = _object(text)
    if fields is not None:
        return _failure_of_object(fields)
    if len(text) > 2 * ENDS_READ:
        text = f"{text[:ENDS_READ]}\n{text[-ENDS_READ:]}"
    return next((name for name, pattern in FAILURES if pattern.search(text)), None)


def _object(text: str) -> dict[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _failure_of_object(fields: dict[str, Any]) -> str | None:
    for key in ("exit_code", "exitCode", "exit_status", "returncode", "code"):
        if isinstance(code := fields.get(key), int) and not isinstance(code, bool) and code:
            # `code` alone may be an HTTP status: 200 is no failure.
            return "exit status" if key != "code" or not 200 <= code < 400 else None
    if fields.get("is_error") is True or fields.get("isError") is True or fields.get("success") is False:
        return "error"
    if fields.get("status") in ("error", "failed", "failure") or (
        isinstance(fields.get("error"), str) and fields["error"]
    ):
        return "error"
    return None
