"""JSON schemas that trouble grammar compilers, each with texts that it allows and texts that it doesn't."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    name: str
    schema: dict[str, Any]
    valid: tuple[str, ...]
    invalid: tuple[str, ...]


def _object(properties: dict[str, Any], required: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), **more}


def _one(schema: Any, **more: Any) -> dict[str, Any]:
    """An object with one property `a` and nothing else."""
    return _object({"a": schema}, ("a",), additionalProperties=False, **more)


TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": _object(
            {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            ("name",),
            additionalProperties=False,
        )
    },
}

CASES = (
    Case(
        "plain object",
        _object({"city": {"type": "string"}, "days": {"type": "integer"}}, ("city",), additionalProperties=False),
        ('{"city": "Oslo"}', '{"city": "Tromsø", "days": 3}'),
        ('{"days": 3}', '{"city": 3}', '{"city": "Oslo", "days": 1.5}', '{"city": "Oslo", "other": 1}'),
    ),
    Case(
        "pattern without anchors",
        _one({"type": "string", "pattern": "[0-9]{2}"}),
        ('{"a": "42"}', '{"a": "in 42 days"}'),
        ('{"a": "4"}', '{"a": "none"}'),
    ),
    Case(
        "pattern \\S",
        _one({"type": "string", "pattern": "\\S"}),
        ('{"a": "x"}', '{"a": " x y "}'),
        ('{"a": " "}', '{"a": ""}'),
    ),
    Case(
        "pattern with anchors",
        _one({"type": "string", "pattern": "^[a-z]+-[0-9]+$"}),
        ('{"a": "ab-12"}',),
        ('{"a": "ab12"}', '{"a": "xab-12 "}'),
    ),
    Case(
        "pattern with quote and backslash",
        _one({"type": "string", "pattern": '^"\\\\$'}),
        ('{"a": "\\"\\\\"}',),
        ('{"a": "x"}', '{"a": "\\""}'),
    ),
    Case(
        "maxLength 1,000,000,000",
        _one({"type": "string", "maxLength": 10**9}),
        ('{"a": "short"}',),
        ('{"a": 1}',),
    ),
    Case(
        "maxLength 3000",
        _one({"type": "string", "minLength": 2, "maxLength": 3000}),
        ('{"a": "ok"}', '{"a": "æø"}'),
        ('{"a": "x"}', '{"a": "' + "x" * 3001 + '"}'),
    ),
    Case(
        "nested free objects",
        _one(_object({"b": {"type": "object"}}, ("b",))),
        ('{"a": {"b": {"x": [1, {"y": null}]}}}', '{"a": {"b": {}, "c": 1}}'),
        ('{"a": {"b": []}}', '{"a": {}}'),
    ),
    Case("anything", {}, ("{}", "[1, 2]", '"x"', "null", "-1.5e3"), ("{", "nul", "[1,]")),
    Case(
        "$ref to definitions",
        _one({"$ref": "#/definitions/x"}, definitions={"x": {"type": "integer"}}),
        ('{"a": 7}',),
        ('{"a": "7"}',),
    ),
    Case(
        "recursion",
        TREE,
        ('{"name": "x"}', '{"name": "x", "children": [{"name": "y", "children": []}]}'),
        ('{"name": "x", "children": [{"children": []}]}',),
    ),
    Case(
        "enum of all kinds",
        _one({"enum": ["x", 1, None, True, ["y"]]}),
        ('{"a": "x"}', '{"a": null}', '{"a": ["y"]}'),
        ('{"a": "y"}', '{"a": false}', '{"a": 2}'),
    ),
    Case("const", _one({"const": 'say "é"\n'}), ('{"a": "say \\"é\\"\\n"}',), ('{"a": "say"}',)),
    Case(
        "anyOf",
        _one({"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "array", "items": {"type": "number"}}]}),
        ('{"a": "x"}', '{"a": null}', '{"a": [1, 2.5]}'),
        ('{"a": 1}', '{"a": ["x"]}'),
    ),
    Case(
        "oneOf by a const",
        {
            "oneOf": [
                _object({"kind": {"const": "a"}, "n": {"type": "integer"}}, ("kind", "n"), additionalProperties=False),
                _object({"kind": {"const": "b"}, "s": {"type": "string"}}, ("kind", "s"), additionalProperties=False),
            ]
        },
        ('{"kind": "a", "n": 1}', '{"kind": "b", "s": "x"}'),
        ('{"kind": "a", "s": "x"}', '{"kind": "c"}'),
    ),
    Case(
        "allOf",
        _one({"allOf": [{"type": "string", "minLength": 2}, {"type": "string", "maxLength": 3}]}),
        ('{"a": "xy"}', '{"a": "xyz"}'),
        ('{"a": "x"}', '{"a": "xyzz"}'),
    ),
    Case(
        "formats",
        _object(
            {"d": {"type": "string", "format": "date"}, "u": {"type": "string", "format": "uuid"}},
            ("d", "u"),
            additionalProperties=False,
        ),
        ('{"d": "2026-11-30", "u": "123e4567-e89b-12d3-a456-426614174000"}',),
        ('{"d": "30.11.2026", "u": "123e4567-e89b-12d3-a456-426614174000"}', '{"d": "2026-11-30", "u": "x"}'),
    ),
    Case(
        "additionalProperties with a schema",
        {"type": "object", "additionalProperties": {"type": "integer"}},
        ("{}", '{"any": 1, "other": 2}'),
        ('{"any": "x"}',),
    ),
    Case(
        "minItems, maxItems",
        _one({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3}),
        ('{"a": [true, false]}', '{"a": [true, false, true]}'),
        ('{"a": [true]}', '{"a": [true, true, true, true]}'),
    ),
    Case(
        "minimum, maximum",
        _one({"type": "integer", "minimum": -5, "maximum": 120}),
        ('{"a": -5}', '{"a": 120}', '{"a": 0}'),
        ('{"a": 121}', '{"a": -6}'),
    ),
    Case(
        "property names beyond ASCII",
        _object(
            {"größe": {"type": "integer"}, "名前": {"type": "string"}}, ("größe", "名前"), additionalProperties=False
        ),
        ('{"größe": 1, "名前": "é"}',),
        ('{"grosse": 1, "名前": "é"}', '{"größe": 1}'),
    ),
    Case(
        "40 optional properties",
        _object({f"p{n}": {"type": "string"} for n in range(40)}, additionalProperties=False),
        ("{}", '{"p0": "x", "p39": "y"}', '{"p7": "x"}'),
        ('{"p40": "x"}', '{"p0": 1}'),
    ),
)
