"""Objects of kind ResourcePool: the pool that an object describes, and the decision what to do about it.

The pool in Peloton is the truth. The object remembers in its status what was last written there for it: a pool that is
something else since was changed by another client, and only an edit of the object is newer than that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from enum import Enum, auto
from typing import Any, NamedTuple

import orjson

from peloton.api.config_bounds import POOL_KINDS
from peloton.api.v0.respool import respool_pb2 as pb
from services.hostmgr.kubernetes.apiserver.wire import Json

Terms = dict[str, Any]
"""All that an object says about a pool, with defaults: equal for equal pools."""
NAMES = {"reservation": 0.0, "limit": 0.0, "share": 1.0}
"""Amounts of a kind, with the defaults of the API."""
SYNCED = "Synced"
"""The type of the condition."""


class Act(Enum):
    NONE = auto()
    CREATE = auto()
    UPDATE = auto()


class Verdict(NamedTuple):
    act: Act
    reason: str  # of the condition
    message: str = ""


def path_of(item: Json) -> str:
    """Return the path of the object's pool: by default its name, below the root."""
    return str(item["spec"].get("path") or f"/{item['metadata']['name']}")


def find_manager(item: Json) -> str:
    """Return the field manager that last wrote the object's spec, such as kubectl-edit; empty if none is known."""
    managed = [one for one in item["metadata"].get("managedFields") or () if "f:spec" in (one.get("fieldsV1") or {})]
    return str(max(managed, key=lambda one: one.get("time", ""))["manager"]) if managed else ""


def terms_of_object(item: Json) -> Terms:
    """Return the terms of an object that the apiserver has validated."""
    spec = item["spec"]
    given = {one["kind"]: one for one in spec.get("resources") or ()}
    kinds = {
        kind: {name: float(given.get(kind, {}).get(name, default)) for name, default in NAMES.items()}
        | {"type": str(given.get(kind, {}).get("type", "ELASTIC"))}
        for kind in dict.fromkeys((*POOL_KINDS, *given))
    }
    return {
        "description": str(spec.get("description", "")),
        "owningTeam": str(spec.get("owningTeam", "")),
        "policy": str(spec.get("policy", "PriorityFIFO")),
        "slackLimit": float(spec.get("slackLimitPercent", 0)),
        "controllerLimit": float(spec.get("controllerLimitPercent", 0)),
        "resources": kinds,
    }


def terms_of_pool(config: pb.ResourcePoolConfig) -> Terms:
    kinds = {
        one.kind: {name: float(getattr(one, name)) for name in NAMES}
        | {"type": "STATIC" if one.type == pb.STATIC else "ELASTIC"}
        for one in config.resources
    }
    return {
        "description": config.description,
        "owningTeam": config.owningTeam,
        "policy": "PriorityFIFO",
        "slackLimit": config.slackLimit.maxPercent,
        "controllerLimit": config.controllerLimit.maxPercent,
        "resources": kinds,
    }


def config_of(name: str, parent_id: str, terms: Terms, old: pb.ResourcePoolConfig | None) -> pb.ResourcePoolConfig:
    """Return the configuration that has these terms; what objects do not say stays as in ``old``."""
    config = pb.ResourcePoolConfig()
    if old is not None:
        config.CopyFrom(old)
        del config.resources[:]
    config.name, config.parent.value, config.policy = name, parent_id, pb.PriorityFIFO
    config.description, config.owningTeam = terms["description"], terms["owningTeam"]
    config.ClearField("slackLimit")
    config.ClearField("controllerLimit")
    for limit, percent in (
        (config.slackLimit, terms["slackLimit"]),
        (config.controllerLimit, terms["controllerLimit"]),
    ):
        if percent:
            limit.maxPercent = percent
    for kind, amounts in terms["resources"].items():
        each = pb.ResourceConfig(kind=kind, **{name: amounts[name] for name in NAMES})
        each.type = pb.STATIC if amounts["type"] == "STATIC" else pb.ELASTIC
        config.resources.append(each)
    return config


def read_applied(item: Json) -> Terms | None:
    """Return what was last written to the pool for this object; None: nothing was."""
    text = (item.get("status") or {}).get("applied")
    found: Terms | None = orjson.loads(text) if text else None
    return found


def decide(item: Json, pool: pb.ResourcePoolInfo | None) -> Verdict:
    """Compare an object with its pool, None if there is none."""
    wanted, applied = terms_of_object(item), read_applied(item)
    observed = (item.get("status") or {}).get("observedGeneration", 0)
    is_edited = item["metadata"].get("generation", 1) != observed
    if pool is None:
        if applied is not None and not is_edited:
            return Verdict(
                Act.NONE, "Deleted", "the pool was deleted through Peloton's API: edit or delete this object"
            )
        return Verdict(Act.CREATE, "Created")
    current = terms_of_pool(pool.config)
    if current == wanted:
        return Verdict(Act.NONE, SYNCED)
    if (applied is not None and current == applied) or (observed and is_edited):
        return Verdict(Act.UPDATE, "Updated")
    what = "; ".join(_differences(current, wanted))
    if applied is None:
        why = f"the pool exists and differs: {what}: make this object equal, then edit it"
        return Verdict(Act.NONE, "Exists", why)
    who = _describe_author(pool.config)
    return Verdict(Act.NONE, "Conflict", f"the pool was changed {who}: {what}: edit this object to change it again")


def _describe_author(config: pb.ResourcePoolConfig) -> str:
    log = config.changeLog
    who = f"by {log.updatedBy}" if log.updatedBy else "through Peloton's API"
    return f"{who} at {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(log.updatedAt / 1e9))}" if log.updatedAt else who


def _differences(current: Terms, wanted: Terms) -> Iterator[str]:
    for name in current.keys() - {"resources"}:
        if current[name] != wanted[name]:
            yield f"{name} is {current[name]!r}, here {wanted[name]!r}"
    for kind in sorted({*current["resources"], *wanted["resources"]}):
        has, wants = current["resources"].get(kind, {}), wanted["resources"].get(kind, {})
        for name in (*NAMES, "type"):
            if has.get(name) != wants.get(name):
                yield f"{name} of {kind} is {_shown(has.get(name))}, here {_shown(wants.get(name))}"


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value or "not set")


def parent_path(path: str) -> str:
    return path.rpartition("/")[0] or "/"
