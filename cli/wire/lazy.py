"""Modules that are imported when they are used: help and completion do without protobuf."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def lazy_modules(namespace: dict[str, Any], package: str, others: Mapping[str, str]) -> Callable[[str], ModuleType]:
    """Return a module's ``__getattr__``, which imports each name of ``__all__`` and keeps it in ``namespace``.

    ``job`` is in the folder ``job`` of ``package``, and ``job_svc`` below it; ``others``: paths of names that are not.
    """

    def get(name: str) -> ModuleType:
        if name not in namespace["__all__"]:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        noun = name.removesuffix("_svc")
        folder = noun if name == noun else f"{noun}.svc"
        namespace[name] = import_module(f"{package}.{others.get(name, f'{folder}.{name}_pb2')}")
        return namespace[name]  # type: ignore[no-any-return]

    return get
