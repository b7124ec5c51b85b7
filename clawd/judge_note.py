"""One sentence on who judges the turns, and why, as `clawd status` shows it. Light: server and learner both take it."""

from __future__ import annotations

from clawd.config import JudgeSettings, Settings


def judge_note(settings: Settings, model_is_embedded: bool) -> str:
    """Who judges under these settings, with a warning where that can't work well."""
    judge = settings.judge
    if judge.kind == "rules":
        return RULES_EMBEDDED if model_is_embedded else RULES
    note = f"{judge.votes} votes of {_asked(judge)}; fixed rules keep their vetoes"
    if judge.base_url is None and judge.model is None and model_is_embedded:
        return f"{note}. {TOO_SMALL}"
    return note


LANGUAGES = "English; some German, French, Spanish"
RULES = f"fixed rules read what users and tools reply ({LANGUAGES}); judge.kind = llm asks a model instead"
RULES_EMBEDDED = (
    f"fixed rules read what users and tools reply ({LANGUAGES}), because the embedded 135M model can't judge; "
    "judge.kind = llm with judge.base_url asks a larger one"
)
TOO_SMALL = "The embedded 135M model can't judge: name a larger one with judge.base_url, or set judge.kind = rules"


def _asked(judge: JudgeSettings) -> str:
    model = judge.model or "the served base model"
    return f"{model} at {judge.base_url}" if judge.base_url else f"{model} on this server"
