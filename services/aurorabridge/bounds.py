"""Rules of structs that clients send, and the scan of a binary message by them before the library decodes it.

The scan refuses what no client of Aurora sends: sizes beyond the message, other types than those of the fields, unions
without exactly one member, and structs without the fields that give them a meaning. Fields that the type does not have
are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from thriftpy2.thrift import TType

from services.aurorabridge.thrift import api

DEPTH_MAX = 32
"""Maximum nesting of structs and containers; a request to update a job has nine levels."""
STRING_BYTES_MAX = 4 * 2**20
MEMBERS_MAX = 100_000
"""Maximum number of members of one container: the instances of the largest job."""
VALUES_MAX = 400_000
"""Maximum number of values of a message: fields and members."""
VALUE_BYTES = 256
"""Memory of a decoded value, at most, in bytes."""

REQUIRED = {
    api.InstanceKey: ("jobKey", "instanceId"),
    api.Metadata: ("key",),
    api.Range: ("first", "last"),
    api.LimitConstraint: ("limit",),
    api.Constraint: ("name", "constraint"),
    api.Volume: ("containerPath", "hostPath"),
    api.DockerImage: ("name",),
    api.DockerParameter: ("name", "value"),
    api.MesosFetcherURI: ("value",),
}
"""The fields without which a struct has no meaning. Methods refuse missing arguments and keys themselves."""
UNIONS = frozenset(api.__thrift_meta__["unions"])

_WIDTHS = {TType.BOOL: 1, TType.BYTE: 1, TType.I16: 2, TType.I32: 4, TType.I64: 8, TType.DOUBLE: 8}
NAMES = {
    TType.BOOL: "tf",
    TType.BYTE: "i8",
    TType.I16: "i16",
    TType.I32: "i32",
    TType.I64: "i64",
    TType.DOUBLE: "dbl",
    TType.STRING: "str",
    TType.STRUCT: "rec",
    TType.LIST: "lst",
    TType.SET: "set",
    TType.MAP: "map",
}
"""The names that types have in JSON."""


class Malformed(Exception):
    """Message that is no struct of the type that the method takes. The text names what is wrong."""


def scan(data: bytes, start: int, struct: Any) -> tuple[int, int]:
    """Check that a struct of the type begins at ``start``. Returns its end, and the number of its values."""
    found = _Scan(data)
    return found.struct(start, struct, 0), found.values


class Counted:
    def __init__(self) -> None:
        self.values = 0

    def count(self, more: int) -> None:
        self.values += more
        if self.values > VALUES_MAX:
            raise Malformed(f"the message has more than {VALUES_MAX:,} values")

    def check_members(self, size: int) -> None:
        if not 0 <= size <= MEMBERS_MAX:
            raise Malformed(f"a container claims {size:,} members, want 0 to {MEMBERS_MAX:,}")
        self.count(size)


class _Scan(Counted):
    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data

    def struct(self, at: int, struct: Any, depth: int) -> int:
        """Return the end of a struct; without a type all of its fields are skipped."""
        check_depth(depth)
        specs: Mapping[int, Any] = struct.thrift_spec if struct is not None else {}
        names = []
        while kind := self._number(at, 1):
            field = self._number(at + 1, 2)
            at += 3
            self.count(1)
            if field in specs:
                wanted, name, spec = parse_field(specs[field])
                if kind != wanted:
                    refuse_type(struct, name, NAMES.get(kind, f"type {kind}"), wanted)
                names.append(name)
                at = self._value(at, kind, spec, depth + 1, True)
            else:
                at = self._value(at, kind, None, depth + 1, False)
        check_fields(struct, names)
        return at + 1

    def _value(self, at: int, kind: int, spec: Any, depth: int, is_known: bool) -> int:
        """Return the end of a value."""
        if width := _WIDTHS.get(kind):
            if kind == TType.DOUBLE and is_known and self._number(at, 2) & 0x7FF0 == 0x7FF0:
                raise Malformed("a double is not finite")
            return self._within(at + width)
        if kind == TType.STRING:
            return self._string(at, is_known)
        if kind == TType.STRUCT:
            return self.struct(at, spec, depth)
        check_depth(depth)
        if kind in (TType.LIST, TType.SET):
            given, size = self._number(at, 1), self._number(at + 1, 4)
            return self._members(at + 5, size, ((given, spec),), depth, is_known)
        if kind == TType.MAP:
            keys, values = spec if is_known else (None, None)
            both = ((self._number(at, 1), keys), (self._number(at + 1, 1), values))
            return self._members(at + 6, self._number(at + 2, 4), both, depth, is_known)
        raise Malformed(f"there is no type {kind}")

    def _members(self, at: int, size: int, kinds: tuple[tuple[int, Any], ...], depth: int, is_known: bool) -> int:
        self.check_members(size)
        if not size:
            return self._within(at)
        members = []
        for given, spec in kinds:
            wanted, inner = split(spec) if is_known else (given, None)
            if given != wanted:
                raise Malformed(f"a container has members of type {given}, want {NAMES[wanted]}")
            members.append((given, inner))
        if len(members) == 1 and (width := _WIDTHS.get(members[0][0])):
            return self._within(at + size * width)
        for _ in range(size):
            for kind, inner in members:
                at = self._value(at, kind, inner, depth + 1, is_known)
        return at

    def _string(self, at: int, is_known: bool) -> int:
        size = self._number(at, 4)
        if not 0 <= size <= STRING_BYTES_MAX:
            raise Malformed(f"a string claims {size:,} bytes, want 0 to {STRING_BYTES_MAX:,}")
        end = self._within(at + 4 + size)
        if is_known:
            try:
                self._data[at + 4 : end].decode()
            except UnicodeDecodeError:
                raise Malformed("a string is not UTF-8") from None
        return end

    def _number(self, at: int, width: int) -> int:
        return int.from_bytes(self._data[at : self._within(at + width)], "big", signed=True)

    def _within(self, end: int) -> int:
        if end > len(self._data):
            raise Malformed(f"the message ends after {len(self._data):,} bytes, in the middle of a value")
        return end


def parse_field(spec: tuple[Any, ...]) -> tuple[int, str, Any]:
    """Return type, name and the type of members of a field of the library's table."""
    return spec[0], spec[1], spec[2] if len(spec) == 4 else None


def split(spec: Any) -> tuple[int, Any]:
    return spec if isinstance(spec, tuple) else (spec, None)


def check_depth(depth: int) -> None:
    if depth > DEPTH_MAX:
        raise Malformed(f"structs and containers are nested deeper than {DEPTH_MAX}")


def check_fields(struct: Any, names: list[str]) -> None:
    if struct in UNIONS and len(names) != 1:
        raise Malformed(f"union {struct.__name__} has {len(names)} members ({', '.join(names)}), want one")
    for name in REQUIRED.get(struct, ()):
        if name not in names:
            raise Malformed(f"{struct.__name__} has no {name}")


def refuse_type(struct: Any, name: str, given: str, wanted: int) -> NoReturn:
    raise Malformed(f"{struct.__name__}.{name} is {given}, want {NAMES[wanted]}")
