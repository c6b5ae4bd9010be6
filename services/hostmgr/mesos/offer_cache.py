"""The open offers: the resources of each in Mesos's form and in Peloton's."""

from __future__ import annotations

from collections.abc import Iterable

from peloton.lifecycle.constraints import Labels
from peloton.model.ids import Hostname
from services.hostmgr.driver import FreeResources
from services.hostmgr.mesos.agents import labels_of
from services.hostmgr.mesos.resources import ANY_ROLE, Json, Offered, OfferedReader, OfferedResources
from services.hostmgr.mesos.volumes import volumes_in, whole

LABELLED_MAX = 100_000
"""Limit of agents whose labels are cached: each offer repeats the attributes of its agent."""


class OfferCache:
    """Open offers. The thread of events adds them, any thread uses them."""

    def __init__(self, role: str = ANY_ROLE) -> None:
        self._reader = OfferedReader(role)
        self._offers: dict[str, Offered] = {}
        self._volumes: dict[str, dict[str, Json]] = {}  # by offer, if it has volumes
        self._labels: dict[str, Labels] = {}  # by agent id

    def receive(self, offers: Iterable[Json]) -> list[FreeResources]:
        return [self._resources_of(offer) for offer in offers]

    def _resources_of(self, offer: Json) -> FreeResources:
        offer_id, agent_id = offer["id"]["value"], offer["agent_id"]["value"]
        offered = self._offers[offer_id] = self._reader.read(offer["resources"])
        hostname, unavailability = Hostname(offer["hostname"]), offer.get("unavailability")
        labels = self._labels.get(agent_id)
        if labels is None:
            if len(self._labels) >= LABELLED_MAX:
                self._labels.clear()
            labels = self._labels[agent_id] = labels_of(hostname, offer.get("attributes", ()))
        if volumes := volumes_in(offer["resources"]):
            self._volumes[offer_id] = volumes
        goes_ns = max(int(unavailability["start"]["nanoseconds"]), 1) if unavailability else 0
        amounts = offered.free, offered.revocable, offered.ports
        return FreeResources(offer_id, hostname, agent_id, *amounts, labels, goes_ns, volumes=whole(volumes))

    def forget(self, offer_ids: Iterable[str]) -> None:
        for offer_id in offer_ids:
            self._offers.pop(offer_id, None)
            self._volumes.pop(offer_id, None)

    def use(self, offer_ids: Iterable[str]) -> tuple[list[str], OfferedResources]:
        """Remove the offers that are still valid, and return them with all their resources."""
        standing, pot = [], OfferedResources()
        for offer_id in offer_ids:
            if (offered := self._offers.pop(offer_id, None)) is not None:
                standing.append(offer_id)
                pot.scalars += offered.scalars
                pot.port_entries += offered.port_entries
                pot.volumes |= self._volumes.pop(offer_id, {})
        return standing, pot

    def clear(self) -> None:
        """Remove all offers, which end with the subscription."""
        self._offers.clear()
        self._volumes.clear()
        self._labels.clear()
