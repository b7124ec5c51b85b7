"""What counts as no answer, whoever asks."""

import pytest

from clawd.degenerate import EMPTY, ONE_TOKEN, REPEATING, degenerate

PROSE = "Bread is made of flour, water, salt and yeast; knead it, let it rise, and bake it until it sounds hollow."


@pytest.mark.parametrize(
    ("ids", "text", "reason"),
    [
        ([], "", EMPTY),
        ([5, 6], " \n", EMPTY),
        ([5], "Yes", ONE_TOKEN),
        ([5] * 24, "ha" * 24, REPEATING),
        ([*range(30), *([7, 8, 9] * 20)], "begins well", REPEATING),
        (
            range(400),
            "".join(f"Row {n}: the very same sentence as in all the other rows of it. " for n in range(60)),
            REPEATING,
        ),  # no period, but a counter
        (
            range(90),
            "Great! " + "Well, well done! " * 7 + "\n\n" + "Well done, well done, well! " * 5,
            REPEATING,
        ),  # a chant
        (range(60), "".join(f"({c}) Well done, Ben! Well done. Well done! Well done.\n\n" for c in "BCDA"), REPEATING),
        ([5, 6], "Four.", None),
        (range(90), "".join(f'{{"name": "{c}", "age": {n}}},\n' for n, c in enumerate("abcdefghijklmno")), None),
        (range(90), "\n".join(f"- item {n}: buy {n * 3} of them" for n in range(12)), None),
        ([5] * 4, "ha ha ha ha", None),
        (range(30), PROSE, None),
        (range(100), PROSE + "\n" + "".join(f"| {n} | {n * n} | {chr(97 + n)} |\n" for n in range(20)), None),
    ],
)
def test_what_is_no_answer(ids, text, reason):
    assert degenerate(list(ids), text) == reason
