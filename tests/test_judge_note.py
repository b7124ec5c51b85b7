from clawd.config import JudgeSettings, Settings
from clawd.judge_note import judge_note


def note(embedded: bool, **judge: object) -> str:
    return judge_note(Settings(judge=JudgeSettings(**judge)), embedded)


def test_rules_are_the_default_and_the_embedded_model_the_reason() -> None:
    assert "the embedded 135M model can't judge" in note(True)
    assert "135M" not in note(False) and "fixed rules" in note(False)


def test_a_model_as_judge_is_named() -> None:
    assert note(False, kind="llm").startswith("3 votes of the served base model on this server")
    assert "5 votes of big at http://x/v1" in note(True, kind="llm", votes=5, model="big", base_url="http://x/v1")


def test_the_embedded_model_as_its_own_judge_is_warned_of() -> None:
    assert "can't judge" in note(True, kind="llm")
    assert "can't judge" not in note(True, kind="llm", base_url="http://x/v1", model="big")
    assert "can't judge" not in note(False, kind="llm")
