"""Conversion and validation of the layout of a job's pods in v0 messages."""

from __future__ import annotations

from collections.abc import Iterator

from peloton.api.config_bounds import SPREADS_MAX, TEXT_MAX
from peloton.api.v0.job import job_pb2
from peloton.model.layout import GangClose, Layout, Spread


def layout(placement: job_pb2.Placement) -> Layout | None:
    spread = tuple(Spread(rule.label, rule.maxSkew or 1, not rule.soft) for rule in placement.spread)
    close = placement.gangClose
    gang = GangClose(close.label, close.required) if placement.HasField("gangClose") else None
    return Layout(spread, gang) if spread or gang else None


def layout_faults(config: job_pb2.JobConfig) -> Iterator[str]:
    placement = config.placement
    if config.type == job_pb2.DAEMON and placement.spread:
        yield "placement is given: a daemon has one instance on each host that matches, leave it out"
    if len(placement.spread) > SPREADS_MAX:
        yield f"placement has {len(placement.spread)} rules to spread, at most {SPREADS_MAX} are allowed"
        return
    if placement.HasField("gangClose"):
        yield from _close_faults(placement.gangClose, config.sla.minimumRunningInstances)
    labels = [rule.label for rule in placement.spread]
    for order, label in enumerate(labels):
        if not label:
            yield f"placement.spread[{order}] names no label of hosts"
        elif len(label) > TEXT_MAX:
            yield f"placement.spread[{order}]: the label has {len(label)} characters, at most {TEXT_MAX} are allowed"
        elif label in labels[:order]:
            yield f"placement.spread[{order}]: the label {label} is there already"


def _close_faults(close: job_pb2.GangClose, gang_size: int) -> Iterator[str]:
    if not close.label:
        yield "placement.gangClose names no label of hosts"
    elif len(close.label) > TEXT_MAX:
        yield f"placement.gangClose: the label has {len(close.label)} characters, at most {TEXT_MAX} are allowed"
    if gang_size < 2:
        yield f"placement.gangClose is given: the job has no gang, its minimumRunningInstances is {gang_size}"
