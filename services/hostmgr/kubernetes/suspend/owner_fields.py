"""Fields of owners' objects, by paths such as ``spec.runPolicy.suspend``, and the pod sets that they describe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from services.hostmgr.kubernetes.apiserver.wire import Json

PODS_MAX = 100_000
"""Limit of pods of one owner."""
POD_SETS_MAX = 1_000
"""Limit of pod sets of one owner."""


@dataclass(frozen=True, slots=True)
class PodSet:
    """Equal pods of an owner. ``template`` has their metadata and spec; ``spare`` of them come only when they are
    wanted, and may never come."""

    name: str
    count: int
    template: Json
    spare: int = 0


class Unreadable(ValueError):
    """The error of an object whose pods cannot be counted; the text names field and rule."""


def find(object: Any, path: str) -> Any:
    """Return the value at the path; None if it is missing. An empty path means the object."""
    for name in path.split(".") if path else ():
        object = object.get(name) if isinstance(object, dict) else None
    return object


def read_count(object: Json, path: str, otherwise: int) -> int:
    """Return the count at the path, or the given one if it is missing. Raises Unreadable."""
    found = find(object, path)
    if found is None:
        return otherwise
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise Unreadable(f"{path} is {found!r}: want a whole number of 0 or more")
    return found


def read_template(object: Json, path: str, where: str) -> Json:
    """Return the pod template at the path, ``where`` in the object. Raises Unreadable."""
    template = find(object, path)
    if not isinstance(template, dict) or not find(template, "spec.containers"):
        raise Unreadable(f"{where}.{path} is no pod template: want spec.containers")
    return template
