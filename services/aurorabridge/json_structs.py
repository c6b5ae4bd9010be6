"""Structs in Apache Thrift's JSON, read by the same rules as binary ones.

thriftpy2 fails at fields that it does not know, and takes three seconds to write a list of 10,000 tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any

import orjson
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
from services.aurorabridge.splice import Spliced
from services.aurorabridge.thrift import api

INTEGERS = {TType.BYTE: 8, TType.I16: 16, TType.I32: 32, TType.I64: 64}
"""The bits of each type."""
PLAIN = {*INTEGERS, TType.DOUBLE, TType.STRING}
"""The types whose values are those of JSON."""
PIECE = 1_000
"""Number of members of a long list that are serialized at a time."""
_SHARED = (api.TaskConfig, api.TaskEvent)
"""Structs that many tasks share."""


def read_json(tree: object, struct: Any) -> tuple[Any, int]:
    """Return the struct that the parsed JSON has, and the number of its values. Raises Malformed."""
    found = _Reader()
    return found.struct(tree, struct, 0), found.values


def to_json(struct: Any) -> dict[str, Any]:
    """Return the JSON of a struct, to be serialized."""
    return _tree(struct, {})


def _tree(struct: Any, known: dict[int, tuple[Any, dict[str, Any]]]) -> dict[str, Any]:
    """Return the JSON of a struct; ``known`` has that of shared ones by their Python id, which they keep meanwhile."""
    if not isinstance(struct, _SHARED):
        return _make_tree(struct, known)
    if id(struct) not in known:
        known[id(struct)] = struct, _make_tree(struct, known)
    return known[id(struct)][1]


def _make_tree(struct: Any, known: dict[int, tuple[Any, dict[str, Any]]]) -> dict[str, Any]:
    tree = {}
    for number, name, kind, spec in _fields(struct.__class__):
        value = getattr(struct, name)
        if value is not None:
            tree[number] = {NAMES[kind]: value if kind in PLAIN else _node(value, kind, spec, known)}
    return tree


def _join(head: list[Any], members: Iterator[Any]) -> orjson.Fragment:
    """Serialize a list piece by piece: the trees of hundreds of thousands of structs take a gigabyte."""
    pieces = [orjson.dumps(head)[:-1]]
    while some := list(islice(members, PIECE)):
        pieces.append(orjson.dumps(some)[1:-1])
    return orjson.Fragment(b",".join(pieces) + b"]")


@cache
def _fields(struct: Any) -> list[tuple[str, str, int, Any]]:
    found = ((number, parse_field(spec)) for number, spec in struct.thrift_spec.items())
    return [(str(number), name, kind, spec) for number, (kind, name, spec) in found]


def _node(value: Any, kind: int, spec: Any, known: dict[int, tuple[Any, dict[str, Any]]]) -> Any:
    if kind == TType.STRUCT:
        return _tree(value, known)
    if kind in (TType.LIST, TType.SET):
        wanted, inner = split(spec)
        members = (_node(one, wanted, inner, known) for one in value)
        head = [NAMES[wanted], len(value)]
        return _join(head, members) if isinstance(value, Spliced) else [*head, *members]
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
