"""Rules for modules that write pods, and for the actors in whose name they do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from peloton.lifecycle.pod_machine import Actor, Event
from tests.unit.tidy import find, is_migration, tree_of

POD_WRITES = "services/storage/pods/writes.py"
POD_ACTORS: dict[str, set[Actor]] = {
    "peloton/lifecycle/pod.py": {Actor.HOSTMGR},
    "peloton/lifecycle/settle.py": {Actor.SETTLE},
    "services/storage/admission/admission.py": {Actor.RESMGR},
    "services/storage/admission/evictions.py": {Actor.RESMGR, Actor.HOSTMGR},
    "services/storage/admission/gang_requeues.py": {Actor.RESMGR},
    "services/storage/admission/queue.py": {Actor.RESMGR},
    "services/storage/admission/requeues.py": {Actor.RESMGR},
    "services/storage/daemons/daemons.py": {Actor.HOSTMGR},
    "services/storage/jobs/steering.py": {Actor.API},
    "services/storage/pods/creation.py": {Actor.CREATION, Actor.ROLLOUT},
    "services/storage/pods/external_pods.py": {Actor.HOSTMGR},
    "services/storage/pods/host_pods.py": {Actor.HOSTMGR},
    "services/storage/pods/pods.py": {Actor.API},
    "services/storage/pods/status_writes.py": {Actor.HOSTMGR},
    "services/storage/updates/disruptions.py": {Actor.API, Actor.HOSTMGR},
    "services/storage/updates/rolling.py": {Actor.ROLLOUT},
}
"""Actors in whose name a module causes events of pods."""
_POD_SQL = re.compile(r"\b(update|into)\s+[\"'`]?pod\b(?!_)", re.IGNORECASE)
_SQL_MODULES = ("sa", "sqlalchemy", "sqlite", "postgresql")


@cache
def other_tables() -> frozenset[str]:
    """Names that ``services/storage/tables.py`` gives to the tables, but for that of the pods."""
    tree = tree_of(Path("services/storage/tables.py"))
    assigned = [node.targets[0] for node in tree.body if isinstance(node, ast.Assign)]
    return frozenset(name.id for name in assigned if isinstance(name, ast.Name)) - {"POD"}


def pod_write_faults(path: Path, tree: ast.Module) -> Iterator[str]:
    """Statements that write pods, or a table that cannot be determined here, outside of the one module for them."""
    if path.as_posix() in (POD_WRITES, "services/storage/engine.py") or is_migration(path):
        return  # the callers of the engine's ``upsert`` name its table
    for node in find(tree, ast.Constant, ast.Call):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and _POD_SQL.search(node.value):
                yield f"{path}:{node.lineno}: pods are written by {POD_WRITES}"
        elif (table := _written_table(node)) and table not in other_tables():
            yield f"{path}:{node.lineno}: pods are written by {POD_WRITES}, and this may write them"


def _written_table(call: ast.Call) -> str:
    """The table that ``sa.update(TABLE)``, ``insert(TABLE)``, ``db.upsert(TABLE)`` or ``TABLE.insert()`` writes; ``?``
    when it is not named; empty for other calls."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name not in ("insert", "update", "upsert"):
        return ""
    if isinstance(owner, ast.Name) and owner.id.isupper():
        return owner.id
    builds = owner is None or name == "upsert" or (isinstance(owner, ast.Name) and owner.id in _SQL_MODULES)
    if not builds or not call.args:
        return ""
    return getattr(call.args[0], "id", "?")


def events_caused(path: Path, tree: ast.Module) -> Iterator[tuple[int, Event]]:
    """Line and event of every mention of an event of the pod machine."""
    for node in find(tree, ast.Attribute):
        if getattr(node.value, "id", "") == "Event" and node.attr in _EVENTS:
            yield node.lineno, Event[node.attr]


_EVENTS = frozenset(Event.__members__)
