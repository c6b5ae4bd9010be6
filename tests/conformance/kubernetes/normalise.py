"""Names for values that differ from run to run, in the order of their appearance: uids, versions, times, tokens, run
names.

Left out everywhere: ``managedFields``, which say who wrote which field.
"""

from __future__ import annotations

import re
from typing import Any

UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
NUMBERS = (
    (re.compile(r"(current: )\d+"), r"\1now"),
    (re.compile(r"(too old resource version: \d+ )\(\d+\)"), r"\1(now)"),
    (re.compile(r"(resourceVersion=)[1-9]\d{,8}\b"), r"\1now"),
    (re.compile(r"(continue=)(ey[\w%]+|\d+\.\d+)"), r"\1token"),
    (re.compile(r"^\d+(\.\d+)?m?s$"), "an age"),
)
DROPPED = {"managedFields"}


class Names:
    """The names of one run of a scenario."""

    def __init__(self, suffix: str) -> None:
        self._suffix = suffix
        self._uids: dict[str, str] = {}
        self._versions: dict[str, str] = {}

    def body(self, found: Any, is_list: bool = False) -> Any:
        if isinstance(found, list):
            return [self.body(item) for item in found]
        if isinstance(found, str):
            return self.text(found)
        if not isinstance(found, dict):
            return found
        named = {}
        for key, value in found.items():
            if key in DROPPED:
                continue
            if key == "resourceVersion" and isinstance(value, str):
                named[key] = "now" if is_list else self.version(value)
            elif key == "continue" and value:
                named[key] = "a token"
            else:
                named[key] = self.body(value, is_list=key == "metadata" and "items" in found)
        return named

    def version(self, value: str) -> str:
        """Equal versions have equal names; whether one is before the other is the server's affair."""
        return self._versions.setdefault(value, f"version {len(self._versions) + 1}")

    def text(self, value: str) -> str:
        value = value.replace(f"-{self._suffix}", "")
        value = TIME.sub("a time", value)
        for pattern, name in NUMBERS:
            value = pattern.sub(name, value)
        return UID.sub(lambda found: self._uids.setdefault(found[0], f"uid {len(self._uids) + 1}"), value)


def differences(expected: Any, actual: Any, path: str = "") -> dict[str, str]:
    """Paths of the leaves that differ, with both values."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        found: dict[str, str] = {}
        for key in sorted({*expected, *actual}):
            below = f"{path}.{key}" if path else key
            found |= differences(expected.get(key, MISSING), actual.get(key, MISSING), below)
        return found
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        found = {}
        for place, (one, other) in enumerate(zip(expected, actual, strict=True)):
            found |= differences(one, other, f"{path}[{place}]")
        return found
    same = type(expected) is type(actual) and expected == actual
    return {} if same else {path: f"{expected!r} expected, {actual!r} found"}


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()
