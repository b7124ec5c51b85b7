"""The templates of word problems: a text, the bounds of its numbers, and the steps to its answer.

A step is `a operator b`, where a and b are a number's name, a literal, or `rN`, the result of step N. Bounds are such
that every result is a whole number above 0.
"""

from __future__ import annotations

from dataclasses import dataclass

NAMES = (
    "Amara", "Ben", "Carla", "David", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Keiko", "Liam", "Maya",
    "Noor", "Oscar", "Priya", "Rosa", "Samuel", "Tara", "Umar", "Vera", "Wendy", "Yusuf", "Zoe",
)  # fmt: skip


@dataclass(frozen=True)
class Template:
    text: str
    numbers: dict[str, tuple[int, int]]
    steps: tuple[str, ...]


TEMPLATES = (
    Template(
        "{name} buys {a} notebooks at {b} dollars each and a bag for {c} dollars. How much does {name} pay in all?",
        {"a": (3, 9), "b": (2, 7), "c": (11, 30)},
        ("a * b", "r1 + c"),
    ),
    Template(
        "{name} has {a} stickers and gives {b} of them to {other}. Then {name} buys {c} packs of {d} stickers. "
        "How many stickers does {name} have now?",
        {"a": (30, 60), "b": (5, 25), "c": (2, 6), "d": (4, 12)},
        ("a - b", "c * d", "r1 + r2"),
    ),
    Template(
        "A baker makes {a} trays of {b} rolls in the morning. By noon {name} has sold {c} of them. How many are left?",
        {"a": (5, 9), "b": (12, 24), "c": (20, 55)},
        ("a * b", "r1 - c"),
    ),
    Template(
        "{name} cycles {a} km to work and the same way back, {b} days a week. How many km is that in {c} weeks?",
        {"a": (3, 14), "b": (3, 6), "c": (2, 8)},
        ("a * 2", "r1 * b", "r2 * c"),
    ),
    Template(
        "{name} earns {a} dollars an hour and works {b} hours on each of {c} days. {other} earns {d} dollars less in "
        "all. How much does {other} earn?",
        {"a": (11, 24), "b": (4, 8), "c": (3, 6), "d": (20, 90)},
        ("a * b", "r1 * c", "r2 - d"),
    ),
    Template(
        "A farm has {a} hens. Each lays {b} eggs a week. {name} keeps {c} eggs and sells the rest. How many are sold?",
        {"a": (12, 30), "b": (4, 6), "c": (8, 40)},
        ("a * b", "r1 - c"),
    ),
    Template(
        "{name} reads {a} pages on Monday, twice as many on Tuesday and {b} on Wednesday. How many pages is that?",
        {"a": (11, 40), "b": (10, 50)},
        ("a * 2", "a + r1", "r2 + b"),
    ),
    Template(
        "A hall has {a} rows of {b} chairs. {c} chairs are broken and {d} people have come. How many good chairs stay "
        "empty when {name} counts?",
        {"a": (10, 18), "b": (12, 20), "c": (3, 12), "d": (30, 95)},
        ("a * b", "r1 - c", "r2 - d"),
    ),
    Template(
        "{name} saves {a} dollars a month for {b} months and then spends {c} dollars. {other} gives {name} {d} "
        "dollars. How much money does {name} have?",
        {"a": (20, 60), "b": (4, 12), "c": (15, 75), "d": (5, 40)},
        ("a * b", "r1 - c", "r2 + d"),
    ),
    Template(
        "{name} has {a} large cans with 4 litres of juice each and pours all of it into bottles of 2 litres. Each "
        "bottle sells for {b} dollars, and the empty bottles cost {c} dollars in all. How much money is left?",
        {"a": (6, 15), "b": (5, 9), "c": (10, 40)},
        ("a * 4", "r1 / 2", "r2 * b", "r3 - c"),
    ),
    Template(
        "A train has {a} carriages with {b} seats each. {name} counts {c} free seats. How many seats are taken?",
        {"a": (5, 12), "b": (40, 72), "c": (15, 90)},
        ("a * b", "r1 - c"),
    ),
    Template(
        "{name} is {a} years old. {other} is {b} years older than {name}. How old will the two be together in {c} "
        "years?",
        {"a": (8, 30), "b": (2, 15), "c": (3, 12)},
        ("a + b", "a + r1", "c * 2", "r2 + r3"),
    ),
    Template(
        "{name} plants {a} rows of {b} tulips and {c} rows of {d} roses. How many flowers is that in all?",
        {"a": (3, 9), "b": (8, 20), "c": (2, 8), "d": (5, 15)},
        ("a * b", "c * d", "r1 + r2"),
    ),
    Template(
        "A box holds {a} pencils. {name} has {b} full boxes and hands {c} pencils to each of {d} children. "
        "How many pencils remain?",
        {"a": (24, 36), "b": (4, 8), "c": (2, 4), "d": (8, 22)},
        ("a * b", "c * d", "r1 - r2"),
    ),
    Template(
        "{name} drives {a} km at first, then {b} km more than that, and at last {c} km. How long is the whole drive?",
        {"a": (20, 80), "b": (5, 45), "c": (10, 60)},
        ("a + b", "a + r1", "r2 + c"),
    ),
    Template(
        "Tickets cost {a} dollars for adults and {b} dollars for children. {name} buys {c} of the first and {d} of the "
        "second kind. What do they cost together?",
        {"a": (12, 25), "b": (4, 11), "c": (2, 5), "d": (2, 7)},
        ("a * c", "b * d", "r1 + r2"),
    ),
    Template(
        "{name} has {a} marbles, {other} has three times as many. Together they lose {b}. How many are left?",
        {"a": (15, 50), "b": (10, 45)},
        ("a * 3", "a + r1", "r2 - b"),
    ),
    Template(
        "A pool holds {a} litres already. Two taps add {b} and {c} litres a minute. How many litres are in it after "
        "{d} minutes, when {name} turns them off?",
        {"a": (50, 300), "b": (8, 20), "c": (5, 15), "d": (10, 45)},
        ("b + c", "r1 * d", "a + r2"),
    ),
    Template(
        "{name} bakes {a} cakes and cuts each into {b} pieces. {c} guests eat {d} pieces each. How many pieces are "
        "left?",
        {"a": (5, 9), "b": (12, 16), "c": (8, 15), "d": (2, 3)},
        ("a * b", "c * d", "r1 - r2"),
    ),
    Template(
        "A shop sells {a} shirts at {b} dollars and {c} caps at {d} dollars. {name} pays {e} dollars of that as rent. "
        "What remains?",
        {"a": (8, 20), "b": (12, 25), "c": (5, 15), "d": (6, 11), "e": (40, 95)},
        ("a * b", "c * d", "r1 + r2", "r3 - e"),
    ),
    Template(
        "{name} swims {a} lengths of {b} metres, {other} swims {c} lengths more. How many metres do they swim in all?",
        {"a": (10, 30), "b": (25, 50), "c": (2, 12)},
        ("a + c", "a + r1", "r2 * b"),
    ),
    Template(
        "A school orders {a} packs of {b} folders for {c} classes and {d} folders for {name}'s office. How many "
        "folders are there if {c} of them get lost?",
        {"a": (6, 14), "b": (10, 25), "c": (5, 12), "d": (8, 30)},
        ("a * b", "r1 + d", "r2 - c"),
    ),
    Template(
        "{name} knits {a} rows an hour and works {b} hours a day. A scarf takes {c} rows. How many rows beyond one "
        "scarf are done after {d} days?",
        {"a": (12, 20), "b": (3, 5), "c": (90, 140), "d": (4, 7)},
        ("a * b", "r1 * d", "r2 - c"),
    ),
    Template(
        "A ferry makes {a} trips a day with {b} cars each. On {c} days of the week it also takes {d} lorries. "
        "How many vehicles does {name} count in 7 days?",
        {"a": (4, 9), "b": (15, 32), "c": (2, 6), "d": (3, 9)},
        ("a * b", "r1 * 7", "c * d", "r2 + r3"),
    ),
    Template(
        "{name} picks {a} kg of apples, {other} picks {b} kg more. They sell all at {c} dollars a kg. How much money "
        "do they get?",
        {"a": (12, 35), "b": (3, 14), "c": (2, 5)},
        ("a + b", "a + r1", "r2 * c"),
    ),
    Template(
        "A library has {a} shelves with {b} books each. {name} lends out {c} books and gets {d} back. How many books "
        "stand on the shelves?",
        {"a": (12, 25), "b": (20, 40), "c": (60, 150), "d": (10, 50)},
        ("a * b", "r1 - c", "r2 + d"),
    ),
    Template(
        "{name} buys a phone for {a} dollars, pays {b} dollars at once and the rest in {c} months, with a fee of {d} "
        "dollars in each month. How much is paid after the first day?",
        {"a": (300, 600), "b": (50, 150), "c": (6, 12), "d": (2, 6)},
        ("a - b", "c * d", "r1 + r2"),
    ),
    Template(
        "{name} fills {a} bags with {b} sweets each and has {c} sweets over. How many sweets did {name} have at first, "
        "when {other} had already eaten {d}?",
        {"a": (5, 14), "b": (6, 15), "c": (2, 5), "d": (3, 20)},
        ("a * b", "r1 + c", "r2 + d"),
    ),
)
