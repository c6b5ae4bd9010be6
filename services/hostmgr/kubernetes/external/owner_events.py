"""Events at the owners of evicted pods: their pods are gone soon, and with them what they show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from services.hostmgr.kubernetes.apiserver.wire import Json, Request
from services.hostmgr.kubernetes.external.external_requests import event_about
from services.hostmgr.kubernetes.external.external_specs import Owner

EVICTED = "PelotonEvicted"
PODS_NAMED_MAX, CAUSES_MAX = 5, 3
"""Limits of the pods and of the different causes that one event names."""


class Ending(NamedTuple):
    owner: Owner
    pod: Json
    cause: str


def describe_evictions(endings: Iterable[Ending]) -> list[Request]:
    """Return one event for each owner of pods that are evicted together, however many they are."""
    by_owner: dict[Owner, list[Ending]] = {}
    for one in endings:
        by_owner.setdefault(one.owner, []).append(one)
    return [
        event_about(_reference(owner), "Warning", EVICTED, f"evicts {_names(some)}: {_causes(some)}")
        for owner, some in by_owner.items()
    ]


def _reference(owner: Owner) -> Json:
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "namespace": owner.namespace,
        "name": owner.name,
        "uid": owner.uid,
    }


def _names(endings: Sequence[Ending]) -> str:
    names = sorted(one.pod["metadata"]["name"] for one in endings)
    more = len(names) - PODS_NAMED_MAX
    text = ", ".join(names[:PODS_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    return f"{len(names)} pods ({text})" if len(names) > 1 else f"pod {text}"


def _causes(endings: Iterable[Ending]) -> str:
    return "; ".join(islice(dict.fromkeys(one.cause for one in endings), CAUSES_MAX))
