"""Bytes of the scheduler events; each function returns one finished chunk."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson

from services.minicluster.http.recordio import encode, frame
from services.minicluster.model import Agent, Framework, Offer, Operation
from services.minicluster.resources import AMOUNTS_KEPT_MAX, Amounts, Json, to_json

HEARTBEAT = frame(b'{"type":"HEARTBEAT"}')


def error(message: str) -> bytes:
    return encode({"type": "ERROR", "error": {"message": message}})


def update(status: Json) -> bytes:
    return encode({"type": "UPDATE", "update": {"status": status}})


def subscribed(framework_id: str, heartbeat_s: float, master_info: Json) -> bytes:
    body = {
        "framework_id": {"value": framework_id},
        "heartbeat_interval_seconds": heartbeat_s,
        "master_info": master_info,
    }
    return encode({"type": "SUBSCRIBED", "subscribed": body})


def rescind(offer_id: str) -> bytes:
    return encode({"type": "RESCIND", "rescind": {"offer_id": {"value": offer_id}}})


def failure(agent_id: str, executor_id: str | None = None, status: int | None = None) -> bytes:
    body: Json = {"agent_id": {"value": agent_id}}
    if executor_id is not None:
        body["executor_id"] = {"value": executor_id}
    if status is not None:
        body["status"] = status
    return encode({"type": "FAILURE", "failure": body})


def status_of_operation(item: Operation) -> Json:
    return {
        "operation_id": {"value": item.id},
        "state": item.state,
        "uuid": {"value": item.uuid},
        "agent_id": {"value": item.agent.id},
    }


def operation_status(status: Json) -> bytes:
    return encode({"type": "UPDATE_OPERATION_STATUS", "update_operation_status": {"status": status}})


def attributes(agent: Agent) -> list[Json]:
    result: list[Json] = []
    for name, value in agent.spec.attributes.items():
        if isinstance(value, str):
            ranges = _ranges(value)
            if ranges is None:
                result.append({"name": name, "type": "TEXT", "text": {"value": value}})
            else:
                result.append({"name": name, "type": "RANGES", "ranges": {"range": ranges}})
        else:
            result.append({"name": name, "type": "SCALAR", "scalar": {"value": value}})
    return result


def _ranges(value: str) -> list[Json] | None:
    """`[1-5]` is a RANGES attribute, anything else text."""
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
    rows = [_offer(framework, offer, ip) for offer in batch]
    return encode({"type": "OFFERS", "offers": {"offers": rows}})


@lru_cache(AMOUNTS_KEPT_MAX)
def _amounts(amounts: Amounts, role: str | None, refined: bool) -> orjson.Fragment:
    return orjson.Fragment(orjson.dumps(to_json(dict(amounts), role, refined)))


def _offer(framework: Framework, offer: Offer, ip: str) -> Json:
    agent = offer.agent
    role = offer.role if framework.multi_role else None
    row: dict[str, Any] = {
        "id": {"value": offer.id},
        "framework_id": {"value": framework.id},
        "agent_id": {"value": agent.id},
        "hostname": agent.spec.name,
        "url": url(agent, ip),
        "resources": _amounts(tuple(offer.resources.items()), role, framework.refined),
    }
    if agent.spec.attributes:
        if agent.fragment is None:
            agent.fragment = orjson.dumps(attributes(agent))
        row["attributes"] = orjson.Fragment(agent.fragment)
    if agent.executors:
        mine = [{"value": key[1]} for key in agent.executors if key[0] == framework.id]
        if mine:
            row["executor_ids"] = mine
    if agent.unavailability is not None:
        row["unavailability"] = agent.unavailability
    if role is not None:
        row["allocation_info"] = {"role": role}
    return row
