"""Encoding of the scheduler events; each function returns one complete chunk."""

from __future__ import annotations

from functools import lru_cache

import orjson

from services.lab.mesos.http.recordio import encode, frame
from services.lab.mesos.model import Agent, Framework, Offer
from services.lab.mesos.resources import AMOUNTS_KEPT_MAX, Amounts, Json, to_json

HEARTBEAT_INTERVAL_S = 15.0
HEARTBEAT = frame(b'{"type":"HEARTBEAT"}')


def _event(type_: str, body: Json) -> bytes:
    return encode({"type": type_, type_.lower(): body})


def error(message: str) -> bytes:
    return _event("ERROR", {"message": message})


def update(status: Json) -> bytes:
    return _event("UPDATE", {"status": status})


def subscription_event(framework_id: str, master_info: Json) -> bytes:
    body = {
        "framework_id": {"value": framework_id},
        "heartbeat_interval_seconds": HEARTBEAT_INTERVAL_S,
        "master_info": master_info,
    }
    return _event("SUBSCRIBED", body)


def rescind(offer_id: str) -> bytes:
    return _event("RESCIND", {"offer_id": {"value": offer_id}})


def failure(agent_id: str) -> bytes:
    return _event("FAILURE", {"agent_id": {"value": agent_id}})


def inverse_offer(offer_id: str, framework: Framework, agent: Agent, ip: str) -> bytes:
    row = {
        "id": {"value": offer_id},
        "url": url(agent, ip),
        "framework_id": {"value": framework.id},
        "agent_id": {"value": agent.id},
        "unavailability": agent.unavailability,
    }
    return _event("INVERSE_OFFERS", {"inverse_offers": [row]})


def rescind_inverse_offer(offer_id: str) -> bytes:
    return _event("RESCIND_INVERSE_OFFER", {"inverse_offer_id": {"value": offer_id}})


def attributes(agent: Agent) -> list[Json]:
    result: list[Json] = []
    for name, value in agent.spec.attributes.items():
        if not isinstance(value, str):
            result.append({"name": name, "type": "SCALAR", "scalar": {"value": value}})
        elif (ranges := _ranges(value)) is not None:
            result.append({"name": name, "type": "RANGES", "ranges": {"range": ranges}})
        else:
            result.append({"name": name, "type": "TEXT", "text": {"value": value}})
    return result


def _ranges(value: str) -> list[Json] | None:
    """Parse a RANGES attribute such as `[1-5]`; None for text."""
    if not (value.startswith("[") and value.endswith("]")):
        return None
    pairs = [item.strip().partition("-") for item in value[1:-1].split(",")]
    if not all(begin.isdigit() and end.isdigit() for begin, _, end in pairs):
        return None
    return [{"begin": int(begin), "end": int(end)} for begin, _, end in pairs]


def url(agent: Agent, ip: str) -> Json:
    address = {"hostname": agent.spec.name, "ip": ip, "port": agent.port}
    return {"scheme": "http", "address": address, "path": "/slave(1)"}


def offers(framework: Framework, batch: list[Offer], ip: str) -> bytes:
    return _event("OFFERS", {"offers": [_offer(framework, offer, ip) for offer in batch]})


@lru_cache(AMOUNTS_KEPT_MAX)
def _amounts(amounts: Amounts, role: str | None, refined: bool) -> orjson.Fragment:
    return orjson.Fragment(orjson.dumps(to_json(dict(amounts), role, refined)))


def _offer(framework: Framework, offer: Offer, ip: str) -> Json:
    agent = offer.agent
    role = offer.role if framework.multi_role else None
    row: Json = {
        "id": {"value": offer.id},
        "framework_id": {"value": framework.id},
        "agent_id": {"value": agent.id},
        "hostname": agent.spec.name,
        "url": url(agent, ip),
        "resources": _amounts(tuple(offer.resources.items()), role, framework.refined),
    }
    if agent.spec.attributes:
        if agent.attributes_json is None:
            agent.attributes_json = orjson.dumps(attributes(agent))
        row["attributes"] = orjson.Fragment(agent.attributes_json)
    if agent.unavailability is not None:
        row["unavailability"] = agent.unavailability
    if role is not None:
        row["allocation_info"] = {"role": role}
    return row
