"""What OpenClaw needs to know of clawd: its provider entry, and the lean profile; from old config text to new.

Only clawd's own provider entry is set, key by key, and with `lean` the settings that fit OpenClaw into a small window.
Nothing that OpenClaw may do is widened: a list of allowed tools that is there is only ever cut down. Which model
answers by default stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clawd.connect.json5_text import find, parse, put, strings
from clawd.errors import ConfigError
from clawd.model.names import FAMILY

PROVIDER = "clawd"
ENTRY = ("models", "providers", PROVIDER)
MODEL = f"{PROVIDER}/{FAMILY}"
"""How OpenClaw calls the model. It stays the same over all versions of the adapter, so that history stays valid."""

DEFAULT_PROMPT_TOKENS = 11_900
LEAN_PROMPT_TOKENS = 3_700
"""OpenClaw 2026.9.6's first turn, system prompt and tools: the first in a Qwen vocabulary, the second in SmolLM2's."""

ROOM_TOKENS = 1_500
"""What a short conversation needs beside the prompt."""

OPENCLAW_LEAST_TOKENS = 4_000
"""OpenClaw itself refuses a model with a smaller window."""

LEAN_TOOLS = ("exec", "read", "write", "edit")
ALLOW = ("tools", "allow")
LEAN: dict[tuple[str, ...], Any] = {
    ("agents", "defaults", "skipBootstrap"): True,
    ("agents", "defaults", "contextInjection"): "never",
    ("agents", "defaults", "skills"): [],
    # OpenClaw's own margin, 4,000 tokens, leaves nothing of an 8k window: it would flush its memory after every turn,
    # and the flush would take the conversation's place in the prompt cache.
    ("agents", "defaults", "compaction", "memoryFlush", "softThresholdTokens"): 500,
}
COMPAT = {
    "sendSessionAffinityHeaders": True,
    "supportsPromptCacheKey": True,
    "supportsUsageInStreaming": True,
    "supportsStore": False,
    "supportsDeveloperRole": True,
    "supportsReasoningEffort": False,
    "maxTokensField": "max_completion_tokens",
}


@dataclass(frozen=True)
class Served:
    """What the entry says of clawd, as the running server tells it."""

    base_url: str  # with /v1
    key: str
    context_tokens: int
    answer_tokens: int  # longest answer that the server gives when no limit is named


def connect(old: str, served: Served, *, lean: bool) -> str:
    """The new config text.

    Raises:
        ConfigError: the old one is no JSON5 object, or holds something else where the entry belongs.
    """
    text = old if old.strip() else "{}\n"
    if parse(text).kind != "object":
        raise ConfigError("OpenClaw's config is no object.")
    entry = provider_entry(served)
    if find(parse(text), ENTRY) is None:
        text = put(text, ENTRY, entry)
    else:
        for name, value in entry.items():
            text = put(text, (*ENTRY, name), value)
    return _leaner(text) if lean else text


def provider_entry(served: Served) -> dict[str, Any]:
    model = {
        "id": FAMILY,
        "name": "clawd",
        "reasoning": False,
        "input": ["text"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": served.context_tokens,
        # OpenClaw keeps this much of the window free of conversation.
        "maxTokens": max(1, min(served.answer_tokens, served.context_tokens // 4)),
        "compat": COMPAT,
    }
    return {
        "baseUrl": served.base_url,
        "apiKey": served.key,
        "api": "openai-completions",
        "headers": {"X-Clawd-Client": "openclaw"},
        "models": [model],
    }


def _leaner(text: str) -> str:
    for path, value in LEAN.items():
        text = put(text, path, value)
    if kept_tools(text) is not None:
        return text
    names = strings(find(parse(text), ALLOW))
    if names is None:
        return put(text, ALLOW, list(LEAN_TOOLS))
    fewer = [name for name in names if name.lower() in LEAN_TOOLS]
    return text if fewer == names else put(text, ALLOW, fewer)


def kept_tools(old: str) -> str | None:
    """Why the lean profile leaves the tools of this config as they are; None: it sets them.

    A list beside a narrower profile could allow more than before.
    """
    root = parse(old if old.strip() else "{}")
    profile, allowed = find(root, ("tools", "profile")), find(root, ALLOW)
    if profile is not None and profile.value != "full":
        return "tools.profile chooses them"
    if find(root, ("tools", "alsoAllow")) is not None:
        return "tools.alsoAllow stands beside them"
    names = strings(allowed)
    if allowed is not None and (names is None or not any(name.lower() in LEAN_TOOLS for name in names)):
        return "tools.allow names groups, patterns or others"
    return None


def stored_key(old: str) -> str | None:
    """The key in the entry that is there; None: there is none, or only a reference to one."""
    node = find(parse(old), (*ENTRY, "apiKey")) if old.strip() else None
    return node.value if node is not None and node.kind == "string" and "${" not in node.value else None


def too_small(context_tokens: int, *, lean: bool) -> str | None:
    """Why OpenClaw won't fit the window, with the remedy; None: it will."""
    prompt = LEAN_PROMPT_TOKENS if lean else DEFAULT_PROMPT_TOKENS
    if context_tokens >= max(prompt + ROOM_TOKENS, OPENCLAW_LEAST_TOKENS):
        return None
    profile = "with the lean profile" if lean else "with its default settings"
    fits_lean = not lean and too_small(context_tokens, lean=True) is None
    remedy = "`--lean` sets a profile that fits" if fits_lean else "serve a model with a larger context"
    return (
        f"The context of {context_tokens} tokens is too small for OpenClaw {profile}: its prompt alone has about "
        f"{prompt}; {remedy}."
    )
