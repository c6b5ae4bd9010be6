"""Structs in Apache Thrift's JSON, read by the same rules as binary ones.

thriftpy2 fails at fields that it does not know, and takes three seconds to write a list of 10,000 tasks.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from thriftpy2.thrift import TType

from peloton.model.text import quote
from services.aurorabridge.bounds import (
    NAMES,
    STRING_BYTES_MAX,
    Counted,
    Malformed,
    check_depth,
    check_fields,
    parse_field,
    refuse_type,
    split,
)

INTEGERS = {TType.BYTE: 8, TType.I16: 16, TType.I32: 32, TType.I64: 64}
"""The bits of each type."""
PLAIN = {*INTEGERS, TType.DOUBLE, TType.STRING}
"""The types whose values are those of JSON."""


def read_json(tree: object, struct: Any) -> tuple[Any, int]:
    """Return the struct that the parsed JSON has, and the number of its values. Raises Malformed."""
    found = _Reader()
    return found.struct(tree, struct, 0), found.values


def to_json(struct: Any) -> dict[str, Any]:
    """Return the JSON of a struct, to be serialized."""
    return _tree(struct, {})


def _tree(struct: Any, known: dict[int, tuple[Any, dict[str, Any]]]) -> dict[str, Any]:
    """Return the JSON of a struct; ``known`` has others with theirs, by their Python id: tasks share configurations."""
    if id(struct) not in known:
        tree = {}
        for number, name, kind, spec in _fields(struct.__class__):
            value = getattr(struct, name)
            if value is not None:
                tree[number] = {NAMES[kind]: value if kind in PLAIN else _node(value, kind, spec, known)}
        known[id(struct)] = struct, tree  # a struct that is gone could leave its id to another one
    return known[id(struct)][1]


@cache
def _fields(struct: Any) -> list[tuple[str, str, int, Any]]:
    found = ((number, parse_field(spec)) for number, spec in struct.thrift_spec.items())
    return [(str(number), name, kind, spec) for number, (kind, name, spec) in found]


def _node(value: Any, kind: int, spec: Any, known: dict[int, tuple[Any, dict[str, Any]]]) -> Any:
    if kind == TType.STRUCT:
        return _tree(value, known)
    if kind in (TType.LIST, TType.SET):
        wanted, inner = split(spec)
        return [NAMES[wanted], len(value), *(_node(one, wanted, inner, known) for one in value)]
    if kind == TType.MAP:
        (keys, _), (wanted, inner) = split(spec[0]), split(spec[1])
        tree = {str(key): _node(one, wanted, inner, known) for key, one in value.items()}
        return [NAMES[keys], NAMES[wanted], len(value), tree]
    return int(value) if kind == TType.BOOL else value


class _Reader(Counted):
    def struct(self, node: object, struct: Any, depth: int) -> Any:
        check_depth(depth)
        if not isinstance(node, dict):
            raise Malformed(f"{struct.__name__} is {_kind_of(node)} in JSON, want an object of field numbers")
        found, specs = struct(), struct.thrift_spec
        names = []
        for number, cell in node.items():
            self.count(1)
            field = int(number) if number.isdecimal() and len(number) <= 5 else -1
            if field not in specs:
                continue
            wanted, name, spec = parse_field(specs[field])
            if not isinstance(cell, dict) or len(cell) != 1:
                raise Malformed(f"{struct.__name__}.{name} is {_kind_of(cell)} in JSON, want an object of one type")
            [(given, value)] = cell.items()
            if given != NAMES[wanted]:
                refuse_type(struct, name, quote(given), wanted)
            names.append(name)
            setattr(found, name, self._value(value, wanted, spec, depth + 1))
        check_fields(struct, names)
        return found

    def _value(self, node: Any, kind: int, spec: Any, depth: int) -> Any:
        if kind == TType.STRUCT:
            return self.struct(node, spec, depth)
        if kind in (TType.LIST, TType.SET, TType.MAP):
            check_depth(depth)
            return self._map(node, spec, depth) if kind == TType.MAP else self._list(node, spec, depth)
        if kind == TType.STRING and isinstance(node, str) and len(node) <= STRING_BYTES_MAX:
            return node
        if kind == TType.BOOL and node in (0, 1) and isinstance(node, int):
            return bool(node)
        if kind == TType.DOUBLE and type(node) in (int, float) and math.isfinite(node):
            return float(node)
        if kind in INTEGERS and type(node) is int and node.bit_length() < INTEGERS[kind]:
            return node
        raise Malformed(f"{_kind_of(node)} in JSON is no value of type {NAMES[kind]}")

    def _list(self, node: Any, spec: Any, depth: int) -> list[Any]:
        wanted, inner = split(spec)
        if not isinstance(node, list) or len(node) < 2 or node[1] != len(node) - 2:
            raise Malformed("a list or set in JSON is not [type, size, member...]")
        self.check_members(len(node) - 2)
        if node[0] != NAMES[wanted] and len(node) > 2:
            raise Malformed(f"a container has members of type {quote(str(node[0]))}, want {NAMES[wanted]}")
        return [self._value(one, wanted, inner, depth + 1) for one in node[2:]]

    def _map(self, node: Any, spec: Any, depth: int) -> dict[Any, Any]:
        keys, (wanted, inner) = split(spec[0])[0], split(spec[1])
        if not isinstance(node, list) or len(node) != 4 or not isinstance(node[3], dict) or node[2] != len(node[3]):
            raise Malformed("a map in JSON is not [type, type, size, object]")
        self.check_members(len(node[3]))
        if node[3] and node[:2] != [NAMES[keys], NAMES[wanted]]:
            raise Malformed(f"a map in JSON has other types than {NAMES[keys]} and {NAMES[wanted]}")
        return {key: self._value(value, wanted, inner, depth + 1) for key, value in node[3].items()}


def _kind_of(node: object) -> str:
    kinds = {dict: "an object", list: "an array", str: "a string", bool: "a truth value", type(None): "null"}
    return kinds.get(type(node), "a number")
