"""Modules that are imported when they are used: help and completion do without protobuf."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def lazy_modules(namespace: dict[str, Any], paths: Mapping[str, str]) -> Callable[[str], ModuleType]:
    """Return a module's ``__getattr__`` that imports the module at ``paths[name]`` and keeps it in ``namespace``."""

    def get(name: str) -> ModuleType:
        if name not in paths:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        namespace[name] = import_module(paths[name])
        return namespace[name]  # type: ignore[no-any-return]

    return get
