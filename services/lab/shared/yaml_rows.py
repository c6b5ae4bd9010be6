"""Reads YAML files. Each error names file, field, rule and value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from services.lab.shared.bounded_file import read_bounded

PORT_MAX = 65535
T = TypeVar("T")


class FileFault(ValueError):
    """The error of a file that cannot be used."""


def read_yaml(path: Path) -> object:
    try:
        return yaml.safe_load(read_bounded(path))
    except yaml.YAMLError as error:
        raise FileFault(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError:
        raise FileFault(f"{path}: not valid YAML: too deep") from None
    except (OSError, ValueError) as error:
        raise FileFault(f"{path}: cannot be read: {error}") from error


class Row:
    """A mapping of the file, and its location. Its methods check the field that they return, and raise FileFault."""

    def __init__(self, where: str, value: object, fields: str, joint: str = ".") -> None:
        self.where = where
        self._joint = joint
        if not isinstance(value, dict):
            raise FileFault(f"{where}: expected a mapping with some of {fields}, got {value!r}")
        known = fields.split(", ")
        unknown = sorted(str(key) for key in value if key not in known)
        if unknown:
            raise FileFault(f"{where}: unknown field {unknown[0]!r}; the fields are {fields}")
        self._value: dict[str, Any] = value

    def __contains__(self, key: str) -> bool:
        return key in self._value

    def get(self, key: str) -> object:
        """Return the value unchecked; None if it is missing."""
        return self._value.get(key)

    def at(self, key: str) -> str:
        return f"{self.where}{self._joint}{key}"

    def fault(self, key: str, rule: str) -> FileFault:
        return FileFault(f"{self.at(key)}: must be {rule}, got {self._value.get(key)!r}")

    def only_one(self, *keys: str) -> None:
        found = [key for key in keys if key in self]
        if len(found) > 1:
            raise FileFault(f"{self.where}: {' and '.join(found)} exclude each other")

    def number(self, key: str, default: float, least: float, most: float, is_whole: bool = False) -> float:
        value = self._value.get(key, default)
        if not is_number(value) or not least <= value <= most or (is_whole and value != int(value)):
            raise self.fault(key, f"a {'whole ' if is_whole else ''}number from {least:g} to {most:g}")
        return float(value)

    def text(self, key: str, default: str = "") -> str:
        value = self._value.get(key, default)
        if key in self and (not isinstance(value, str) or not value):
            raise self.fault(key, "a text that is not empty")
        return str(value)

    def flag(self, key: str) -> bool:
        value = self._value.get(key, False)
        if not isinstance(value, bool):
            raise self.fault(key, "true or false")
        return value

    def mapping(self, key: str) -> dict[str, Any]:
        value = self._value.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            raise self.fault(key, "a mapping of names")
        return value

    def row(self, key: str, fields: str) -> Row:
        return Row(self.at(key), self._value.get(key, {}), fields)

    def rows(self, key: str, read: Callable[[Row], T], fields: str) -> tuple[T, ...]:
        value = self._value.get(key, [])
        if not isinstance(value, list):
            raise self.fault(key, "a list")
        return tuple(read(Row(f"{self.at(key)}[{index}]", item, fields)) for index, item in enumerate(value))


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def port_range(text: str) -> tuple[int, int] | None:
    """Return the range of BEGIN-END, or of one port; None unless it rises and stays within 1-65535."""
    begin, dash, end = text.partition("-")
    if not begin.strip().isdigit() or (dash and not end.strip().isdigit()):
        return None
    pair = int(begin), int(end or begin)
    return pair if 0 < pair[0] <= pair[1] <= PORT_MAX else None
