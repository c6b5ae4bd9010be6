"""Conversion between rows and records, and encoding of blobs and small JSON texts."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import zstandard

from peloton.api import convert
from peloton.lifecycle.constraints import pod_labels_named
from peloton.model.job import JobRecord, SlaSpec
from peloton.model.layout import GangClose, Layout, Spread
from peloton.model.pod import (
    AllOf,
    AnyOf,
    Constraint,
    HealthState,
    HostLabel,
    HostPreference,
    Label,
    PodEvent,
    PodLabel,
    PodRecord,
    PodShape,
    PodState,
    Strategy,
    Termination,
    port_label,
)
from peloton.model.resources import Resources
from peloton.model.respool import PoolSpec
from services.storage.mapper import Form, Mapper, Part, spread, strip_nul
from services.storage.tables import JOB, POD, POD_EVENT

_FIRST_STRATEGIES = {Strategy.PACK_HOST, Strategy.SPREAD_JOB, Strategy.EMPTIEST_HOST}
"""Strategies that release 0.1 can read."""
_ZSTD_VERSION = b"\x01"
_COMPRESSION_LEVEL = 3
BLOB_HEAD = 19
"""Format byte plus the longest header of a zstd frame, which contains the size."""
_codecs = threading.local()
_DECODER = json.JSONDecoder()


# -- blobs ---------------------------------------------------------------------------------------------------------


def pack(data: bytes) -> bytes:
    """Compress, with a leading byte for the format."""
    if not hasattr(_codecs, "compressor"):
        _codecs.compressor = zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL)
    compressor: zstandard.ZstdCompressor = _codecs.compressor
    return _ZSTD_VERSION + compressor.compress(data)


def read_unpacked_size(head: bytes) -> int:
    """Return the size of the unpacked content of a blob, given its first BLOB_HEAD bytes."""
    return int(zstandard.frame_content_size(head[1:]))


def unpack(blob: bytes) -> bytes:
    if blob[:1] != _ZSTD_VERSION:
        raise ValueError(f"configuration is stored in unknown format {blob[:1]!r}")
    if not hasattr(_codecs, "decompressor"):
        _codecs.decompressor = zstandard.ZstdDecompressor()
    decompressor: zstandard.ZstdDecompressor = _codecs.decompressor
    return decompressor.decompress(blob[1:])


# -- facts of a configuration --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """Properties of an instance's effective configuration that the system uses without reading the configuration."""

    name: str
    shape: PodShape
    max_failures: int
    health: HealthState  # state at the start of a run
    grace_s: int
    kill_on_preempt: bool = False  # an eviction ends the pod
    labels: tuple[Label, ...] = ()
    image: str = ""


def facts_to_text(facts: InstanceFacts) -> str:
    return name_facts(facts.name, facts_without_name(facts))


def name_facts(name: str, without_name: str) -> str:
    return f"[{json.dumps(name)},{without_name}"


def facts_without_name(facts: InstanceFacts) -> str:
    """Return the text after the name, which many instances share."""
    shape = facts.shape
    text = json.dumps(
        [
            facts.max_failures,
            convert.HEALTH_NUMBERS[facts.health],
            facts.grace_s,
            list(shape.resources),
            shape.port_count,
            int(shape.revocable),
            int(shape.preemptible),
            int(shape.controller),
            shape.strategy.value if shape.strategy in _FIRST_STRATEGIES else Strategy.PACK_HOST.value,
            _constraint_to_json(shape.constraint),
            int(facts.kill_on_preempt),
            facts.labels,
            facts.image,
            *_placement_to_json(shape),
        ],
        separators=(",", ":"),
    )
    return text[1:]


def facts_from_text(text: str) -> InstanceFacts:
    name, end = _DECODER.raw_decode(text, 1)
    return replace(_facts_from_rest(text[end + 1 :]), name=name)


@lru_cache(maxsize=4096)
def _facts_from_rest(text: str) -> InstanceFacts:
    """Parse the text after the name; cached, since instances that differ only in their names share it."""
    max_failures, health, grace_s, amounts, ports, revocable, preemptible, controller, strategy, rule, *more = (
        json.loads(f"[{text}")  # old rows lack the last fields
    )
    kills = bool(more[0]) if more else False
    placement = more[3] if len(more) > 3 else {}
    shape = PodShape(
        resources=replace(Resources(*amounts), extended=tuple(map(tuple, placement.get("extended", ())))),
        port_count=ports,
        revocable=bool(revocable),
        preemptible=bool(preemptible),
        controller=bool(controller),
        strategy=Strategy(placement.get("strategy", strategy)),
        constraint=_constraint_from_json(rule),
        volume_mib=placement.get("volume_mib", 0),
        layout=_layout_from_json(placement),
        preferences=_preferences_from_json(placement),
    )
    # Old rows have no labels: a pod with a constraint on pod labels was assumed to carry them itself.
    labels = [tuple(label) for label in more[1]] if len(more) > 1 else sorted(pod_labels_named(shape.constraint))
    image = more[2] if len(more) > 2 else ""
    return InstanceFacts(
        "",
        shape,
        max_failures,
        convert.HEALTH_STATES[health],
        grace_s=grace_s,
        kill_on_preempt=kills,
        labels=tuple(labels),
        image=image,
    )


def _placement_to_json(shape: PodShape) -> list[dict[str, Any]]:
    """Encode fields that release 0.1 does not know and ignores; empty for most pods."""
    found: dict[str, Any] = {}
    if shape.strategy not in _FIRST_STRATEGIES:
        found["strategy"] = shape.strategy.value
    if shape.resources.extended:
        found["extended"] = shape.resources.extended
    if shape.volume_mib:
        found["volume_mib"] = shape.volume_mib
    if shape.layout and shape.layout.spread:
        found["spread"] = [[rule.label, rule.max_skew, int(rule.is_hard)] for rule in shape.layout.spread]
    if shape.layout and (close := shape.layout.close):
        found["close"] = [close.label, close.is_required]
    if shape.preferences:
        found["preferences"] = [[each.weight, _constraint_to_json(each.constraint)] for each in shape.preferences]
    return [found] if found else []


def _layout_from_json(placement: Mapping[str, Any]) -> Layout | None:
    rules = tuple(Spread(label, skew, bool(hard)) for label, skew, hard in placement.get("spread", ()))
    close = GangClose(*placement["close"]) if "close" in placement else None
    return Layout(rules, close) if rules or close else None


def _preferences_from_json(placement: Mapping[str, Any]) -> tuple[HostPreference, ...]:
    found = [(weight, _constraint_from_json(rule)) for weight, rule in placement.get("preferences", ())]
    return tuple(HostPreference(weight, rule) for weight, rule in found if rule is not None)


def _constraint_to_json(constraint: Constraint | None) -> list[Any] | None:
    match constraint:
        case None:
            return None
        case HostLabel(key, value, condition, count):
            return ["host", key, value, condition, count]
        case PodLabel(key, value, condition, count):
            return ["pod", key, value, condition, count]
        case AllOf(parts):
            return ["all", *(_constraint_to_json(part) for part in parts)]
        case AnyOf(parts):
            return ["any", *(_constraint_to_json(part) for part in parts)]


def _constraint_from_json(rule: Sequence[Any] | None) -> Constraint | None:
    if rule is None:
        return None
    match rule[0]:
        case "host":
            return HostLabel(*rule[1:])
        case "pod":
            return PodLabel(*rule[1:])
        case kind:
            parts = tuple(part for part in map(_constraint_from_json, rule[1:]) if part is not None)
            return AllOf(parts) if kind == "all" else AnyOf(parts)


# -- jobs ----------------------------------------------------------------------------------------------------------


def counts_to_text(counts: Mapping[PodState, int]) -> str:
    numbers = sorted((convert.POD_STATE_NUMBERS[state], count) for state, count in counts.items() if count)
    return json.dumps(dict(numbers))


def counts_from_text(text: str) -> dict[PodState, int]:
    return {convert.POD_STATES[int(number)]: count for number, count in json.loads(text).items()}


JOBS = Mapper(
    JobRecord,
    JOB,
    sla=spread(SlaSpec),
    pod_counts=Form(counts_to_text, counts_from_text),
    labels=Form(
        lambda labels: json.dumps(labels, ensure_ascii=False),
        lambda text: tuple((key, value) for key, value in json.loads(text)),
    ),
)
job_record, job_values = JOBS.record, JOBS.values


# -- pods ----------------------------------------------------------------------------------------------------------


def ports_in(text: str) -> tuple[Label, ...]:
    """Return stored ports as labels."""
    return tuple(port_label(number) for number in json.loads(text).values()) if text else ()


def ports_to_text(ports: Mapping[str, int]) -> str:
    return json.dumps(ports) if ports else ""


def _termination(number: int, exit_code: int, signal: str) -> Termination | None:
    return Termination(convert.TERMINATION_REASONS[number], exit_code, signal) if number else None


def split_termination(termination: Termination | None) -> tuple[int, int, str]:
    if termination is None:
        return 0, 0, ""
    number = convert.TERMINATION_NUMBERS[termination.reason]
    return number, termination.exit_code, strip_nul(termination.signal)


TERMINATION = ("termination", "exit_code", "signal")
"""Columns of a termination, which is one field of a record."""
PODS = Mapper(
    PodRecord,
    POD,
    ports=Form(ports_to_text, lambda text: json.loads(text) if text else {}),
    termination=Part(TERMINATION, _termination, split_termination),
)
pod_record = PODS.record
pod_event = Mapper(PodEvent, POD_EVENT).record


# -- pools ---------------------------------------------------------------------------------------------------------


def pool_to_text(pool: PoolSpec) -> str:
    kinds = [[r.kind, r.reservation, r.limit, r.share, r.type.value] for r in pool.resources if r not in pool.extras]
    percents = [pool.controller_limit_percent, pool.slack_limit_percent]
    return json.dumps([pool.respool_id, pool.parent_id, pool.name, kinds, *percents, pool.policy])
