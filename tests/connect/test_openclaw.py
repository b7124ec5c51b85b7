"""OpenClaw's config, old text to new: the entry, the lean profile, and what is never touched."""

from __future__ import annotations

import json

import pytest

from clawd.connect.json5_text import find, parse
from clawd.connect.openclaw import ENTRY, Served, connect, kept_tools, stored_key, too_small
from clawd.errors import ConfigError

SERVED = Served("http://127.0.0.1:30000/v1", "clawd-k", 8192, 8192)


def connected(old: dict, *, lean: bool = False) -> dict:
    return json.loads(connect(json.dumps(old, indent=2), SERVED, lean=lean))


@pytest.mark.parametrize("old", ["", "\n", "{}"])
def test_a_new_file_holds_the_entry_alone(old: str) -> None:
    config = json.loads(connect(old, SERVED, lean=False))
    assert list(config) == ["models"]
    entry = config["models"]["providers"]["clawd"]
    assert (entry["baseUrl"], entry["apiKey"], entry["api"]) == (SERVED.base_url, "clawd-k", "openai-completions")
    model = entry["models"][0]
    assert (model["id"], model["contextWindow"], model["maxTokens"]) == ("clawd", 8192, 2048)
    assert model["compat"]["sendSessionAffinityHeaders"] is True
    assert model["compat"]["supportsPromptCacheKey"] is True


def test_all_else_is_kept_and_a_second_time_changes_nothing() -> None:
    old = {
        "agents": {"defaults": {"sandbox": {"mode": "all"}, "model": {"primary": "x/y"}}},
        "models": {"providers": {"other": {"apiKey": "secret"}}},
        "tools": {"deny": ["exec"], "elevated": {"enabled": False}},
    }
    config = connected(old)
    del config["models"]["providers"]["clawd"]
    assert config == old
    once = connect(json.dumps(old), SERVED, lean=True)
    assert connect(once, SERVED, lean=True) == once


def test_what_a_person_added_to_the_entry_stays() -> None:
    old = {"models": {"providers": {"clawd": {"baseUrl": "http://old/v1", "timeoutSeconds": 900}}}}
    entry = connected(old)["models"]["providers"]["clawd"]
    assert (entry["baseUrl"], entry["timeoutSeconds"]) == (SERVED.base_url, 900)


def test_the_lean_profile() -> None:
    config = connected({"agents": {"defaults": {"model": "x/y", "skills": ["a"]}}}, lean=True)
    assert config["agents"]["defaults"] == {
        "model": "x/y",
        "skills": [],
        "skipBootstrap": True,
        "contextInjection": "never",
        "compaction": {"memoryFlush": {"softThresholdTokens": 500}},
    }
    assert config["tools"] == {"allow": ["exec", "read", "write", "edit"]}


LEAN_TOOLS = ["exec", "read", "write", "edit"]


@pytest.mark.parametrize(
    ("tools", "after", "is_kept"),
    [
        ({"allow": ["read", "browser"]}, {"allow": ["read"]}, False),
        ({"allow": ["Read"]}, {"allow": ["Read"]}, False),
        ({"profile": "full"}, {"profile": "full", "allow": LEAN_TOOLS}, False),
        ({"deny": ["exec"]}, {"deny": ["exec"], "allow": LEAN_TOOLS}, False),
        ({"allow": ["browser"]}, {"allow": ["browser"]}, True),
        ({"allow": ["group:fs", "web_*"]}, {"allow": ["group:fs", "web_*"]}, True),
        ({"profile": "messaging"}, {"profile": "messaging"}, True),
        ({"alsoAllow": ["x"]}, {"alsoAllow": ["x"]}, True),
    ],
)
def test_lean_never_allows_a_tool_that_was_not(tools: dict, after: dict, is_kept: bool) -> None:
    assert connected({"tools": tools}, lean=True)["tools"] == after
    assert (kept_tools(json.dumps({"tools": tools})) is not None) == is_kept


def test_a_context_that_is_too_small_is_said_with_the_remedy() -> None:
    assert "--lean" in (too_small(8192, lean=False) or "")
    assert too_small(8192, lean=True) is None
    assert too_small(16384, lean=False) is None
    assert "larger context" in (too_small(2048, lean=True) or "")
    assert "larger context" in (too_small(2048, lean=False) or "")


@pytest.mark.parametrize(
    ("entry", "key"),
    [("{apiKey: 'k'}", "k"), ('{apiKey: "${CLAWD_KEY}"}', None), ("{apiKey: {source: 'env'}}", None), ("{}", None)],
)
def test_the_key_that_is_there(entry: str, key: str | None) -> None:
    assert stored_key(f"{{models: {{providers: {{clawd: {entry}}}}}}}") == key
    assert stored_key("") is None


@pytest.mark.parametrize("old", ["[]", "{models: 1}", "{models: {providers: []}}", "nonsense {"])
def test_a_file_that_can_not_be_changed_is_refused(old: str) -> None:
    with pytest.raises(ConfigError):
        connect(old, SERVED, lean=False)


def test_comments_survive() -> None:
    old = "{\n  // mine\n  models: {\n    mode: 'merge', // keep\n  },\n}\n"
    new = connect(old, SERVED, lean=False)
    assert "// mine" in new and "mode: 'merge', // keep\n" in new
    assert find(parse(new), (*ENTRY, "apiKey")).value == "clawd-k"
