"""Matching of recorded events with actual ones."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import orjson

from services.lab.mesos.resources import Resources, parse, take_from
from tests.conformance.minicluster.client import Stream
from tests.conformance.minicluster.normalise import Normaliser

# What differs between equal agents.
ANYWHERE = {"agent_id", "hostname", "url", "attributes"}


@dataclass
class HeldOffer:
    """An actual offer and how much of it no recorded offer has claimed yet."""

    id: str
    offer: dict[str, Any]
    remaining: Resources


@dataclass
class Subscription:
    stream: Stream
    events: dict[tuple[str, ...], deque[Any]] = field(default_factory=dict)
    # host name -> offers in the order they came
    offers: dict[str, list[HeldOffer]] = field(default_factory=dict)


def cover(offer: dict[str, Any], held: dict[str, list[HeldOffer]], anywhere: bool) -> list[HeldOffer] | None:
    """Actual offers of the same agent (or of any one agent) and role that hold what the recorded offer holds.

    Their resources are claimed; None while there is not enough on offer.
    """
    wanted = parse(offer["resources"])
    hosts = [offer["hostname"], *(host for host in held if anywhere and host != offer["hostname"])]
    for host in hosts:
        rest = dict(wanted)
        taking: list[tuple[HeldOffer, Resources]] = []
        for item in held.get(host, ()):
            if anywhere and item.offer.get("allocation_info") != offer.get("allocation_info"):
                continue
            part = {kind: _common(rest[kind], item.remaining[kind]) for kind in rest if kind in item.remaining}
            part = {kind: value for kind, value in part.items() if value}
            if part:
                taking.append((item, part))
                take_from(rest, part)
        if not rest:
            for item, part in taking:
                take_from(item.remaining, part)
            return [item for item, _ in taking]
    return None


def _common(left: Any, right: Any) -> Any:
    """The amount both sides have: the smaller scalar, the overlap of ranges."""
    if isinstance(left, int):
        return min(left, right)
    return tuple((max(a, c), min(b, d)) for a, b in left for c, d in right if max(a, c) <= min(b, d))


def subject(event: dict[str, Any], side: Normaliser) -> tuple[str, ...]:
    """The subject of an event: events of one subject come in a fixed order."""
    type_: str = event["type"]
    body = event.get(type_.lower(), {})
    if type_ == "UPDATE":
        status = body["status"]
        return type_, status["task_id"]["value"], str(status.get("source"))
    if type_ == "RESCIND":
        return type_, body["offer_id"]["value"]
    if type_ == "FAILURE":
        return type_, side.text(body["agent_id"]["value"]), body.get("executor_id", {}).get("value", "")
    if type_ == "INVERSE_OFFERS":
        return type_, side.text(body["inverse_offers"][0]["agent_id"]["value"])
    return (type_,)


def introduces(line: dict[str, Any]) -> set[str]:
    """Names a later call may carry that this event line introduces."""
    if line["kind"] == "stream_response":
        return {item.split(": ", 1)[1] for item in line["raw_headers"] if item.startswith("Mesos-Stream-Id")}
    if line["kind"] != "event":
        return set()
    event = line["event"]
    type_ = event["type"]
    body = event.get(type_.lower(), {})
    if type_ == "SUBSCRIBED":
        return {body["framework_id"]["value"]} if "framework_id" in body else set()
    if type_ == "OFFERS":
        return {offer["id"]["value"] for offer in body["offers"]}
    if type_ == "UPDATE":
        return {body["status"].get("uuid", "")} - {""}
    if type_ == "INVERSE_OFFERS":
        return {offer["id"]["value"] for offer in body["inverse_offers"]}
    return set()


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in strings(item)]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


def brief(line: dict[str, Any]) -> str:
    return orjson.dumps(line["event"]).decode()[:400] if line["kind"] == "event" else line["kind"]


def may_cause(call: dict[str, Any], event: dict[str, Any]) -> bool:
    """A reconciliation brings answers, without a uuid; reports that an agent sends on its own came before, and the
    answers repeat them."""
    request, update = call.get("request"), event.get("event", {}).get("update", {})
    is_reconcile = isinstance(request, dict) and request.get("type") == "RECONCILE"
    return not (is_reconcile and "uuid" in update.get("status", {}))
