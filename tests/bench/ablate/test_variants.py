"""The table of variants: each line is settings that exist, and changes something."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from clawd.bench.ablate.variants import HYBRID, QUICK, VARIANTS, Variant, chosen


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_variant_differs_from_the_default_in_what_it_says(variant: Variant) -> None:
    default, mine = (each.settings(0).model_dump() for each in (VARIANTS[0], variant))
    for key, value in variant.changes.items():
        before, after = default, mine
        for part in key.split("."):
            before, after = before[part], after[part]
        assert after == value
        assert before != value
    assert (mine == default) is not bool(variant.changes)


def test_the_names_are_one_each_and_the_first_is_the_default() -> None:
    names = [variant.name for variant in VARIANTS]
    assert len(set(names)) == len(names)
    assert (VARIANTS[0].name, dict(VARIANTS[0].changes)) == (HYBRID, {})


def test_all_samples_are_trained_and_the_gate_asks_nothing() -> None:
    gate = VARIANTS[0].settings(0).gate
    assert (gate.answers, gate.own_answers, gate.held_back) == (0, 0, 0)


def test_a_seed_is_the_settings_seed() -> None:
    assert VARIANTS[0].settings(7) == VARIANTS[0].settings(0).model_copy(update={"seed": 7})


def test_a_misspelt_setting_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"loss\.no_such"):
        Variant("x", {"loss.no_such": 1}).settings(0)


def test_quick_is_a_few_of_one_update_each() -> None:
    few = chosen(quick=True)
    assert [variant.name for variant in few] == list(QUICK)
    assert {(variant.seeds, variant.updates) for variant in few} == {(1, 1)}
    assert chosen(quick=False) == VARIANTS
