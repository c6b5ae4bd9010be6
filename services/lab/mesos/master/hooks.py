"""Events of one part of the master, to which other parts connect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVarTuple

Values = TypeVarTuple("Values")


class Hook(Generic[*Values]):
    """Hook that calls the connected functions at once, in the order of connecting."""

    __slots__ = ("_functions",)

    def __init__(self) -> None:
        self._functions: list[Callable[[*Values], None]] = []

    def connect(self, function: Callable[[*Values], None]) -> None:
        self._functions.append(function)

    def __call__(self, *values: *Values) -> None:
        for function in self._functions:
            function(*values)
