"""Offers of Mesos as free resources."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.model.resources import Resources
from services.hostmgr.mesos import offer_cache
from services.hostmgr.mesos.offer_cache import OfferCache

CPUS = {"name": "cpus", "type": "SCALAR", "scalar": {"value": 4.0}, "role": "*"}
RACK = {"name": "rack", "type": "TEXT", "text": {"value": "a"}}


def offer(offer_id: str, **more: Any) -> dict[str, Any]:
    ids = {"id": {"value": offer_id}, "agent_id": {"value": "h1-S"}}
    return {**ids, "hostname": "h1", "resources": [CPUS], "attributes": [RACK], **more}


def test_an_offer_is_capacity_on_its_host() -> None:
    """The free resources of an offer have the labels of its agent."""
    (announced,) = OfferCache().receive([offer("o1")])

    assert ("o1", "h1", "h1-S", Resources.of(4), 0) == (
        announced.resources_id,
        announced.hostname,
        announced.host_id,
        announced.free,
        announced.goes_ns,
    )
    assert {"hostname": "h1", "rack": "a"} == dict(announced.labels)


@pytest.mark.parametrize(("start_ns", "goes_ns"), [(5, 5), (0, 1)])
def test_a_host_that_mesos_takes_away_says_when(start_ns: int, goes_ns: int) -> None:
    """A host whose time is over already is not one that stays."""
    unavailability = {"start": {"nanoseconds": start_ns}}

    assert [goes_ns] == [
        announced.goes_ns for announced in OfferCache().receive([offer("o1", unavailability=unavailability)])
    ]


def test_an_offer_is_used_once() -> None:
    """A rescinded or used offer holds nothing; the others of a claim are valid."""
    cache = OfferCache()
    cache.receive([offer("o1"), offer("o2"), offer("o3")])
    cache.forget(["o1"])

    standing, pot = cache.use(["o1", "o2"])

    assert (["o2"], Resources.of(4)) == (standing, pot.total(revocable=False))
    assert ([], []) == (cache.use(["o2"])[0], cache.use(["unknown"])[0])
    cache.clear()
    assert [] == cache.use(["o3"])[0]


def test_labels_of_a_bounded_number_of_agents_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The labels of a forgotten agent are read again."""
    monkeypatch.setattr(offer_cache, "LABELLED_MAX", 1)
    cache = OfferCache()

    free_resources = cache.receive([offer("o1"), offer("o2", hostname="h2", agent_id={"value": "h2-S"}), offer("o3")])

    assert ["h1", "h2", "h1"] == [announced.labels["hostname"] for announced in free_resources]
    assert free_resources[0].labels is not free_resources[2].labels
