"""Conversion of layouts and domain counts to and from the host manager's private messages.

Shapes are identified by their index in the request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from peloton.api.private import hostmgr_pb2 as pb
from peloton.model.layout import DomainCount, Domains, GangClose, Layout, Spread
from peloton.model.pod import PodShape


def layout_to_wire(layout: Layout | None) -> dict[str, Any]:
    """Return the fields of ``Wanted``."""
    if layout is None:
        return {}
    rules = [pb.Spread(label=rule.label, max_skew=rule.max_skew, hard=rule.is_hard) for rule in layout.spread]
    close = layout.close
    return {"spread_over": rules} | (
        {"close_label": close.label, "close_required": close.is_required} if close is not None else {}
    )


def layout_from_wire(wanted: pb.Wanted) -> Layout | None:
    rules = tuple(Spread(rule.label, rule.max_skew, rule.hard) for rule in wanted.spread_over)
    close = GangClose(wanted.close_label, wanted.close_required) if wanted.close_label else None
    return Layout(rules, close) if rules or close else None


def counts_to_wire(
    counts: Mapping[PodShape, Sequence[DomainCount]], shapes: Sequence[PodShape]
) -> list[pb.DomainCount]:
    return [
        pb.DomainCount(wanted_index=at, rule_index=rule, pods=count.pods, open=sorted(count.open))
        for at, shape in enumerate(shapes)
        for rule, count in enumerate(counts.get(shape, ()))
    ]


def counts_from_wire(
    wire: Iterable[pb.DomainCount], shapes: Sequence[PodShape]
) -> dict[PodShape, tuple[DomainCount, ...]]:
    found: dict[PodShape, tuple[DomainCount, ...]] = {}
    for one in sorted(wire, key=lambda one: (one.wanted_index, one.rule_index)):
        shape = shapes[one.wanted_index]
        found[shape] = (*found.get(shape, ()), DomainCount(dict(one.pods), frozenset(one.open)))
    return found


def domains_to_wire(domains: Mapping[PodShape, Sequence[Domains]], shapes: Sequence[PodShape]) -> list[pb.Domains]:
    return [
        pb.Domains(wanted_index=at, rule_index=rule, counts=one.counts, lowest_name=one.lowest_name, lowest=one.lowest)
        for at, shape in enumerate(shapes)
        for rule, one in enumerate(domains.get(shape, ()))
    ]


def domains_from_wire(wire: Iterable[pb.Domains], shapes: Sequence[PodShape]) -> dict[PodShape, tuple[Domains, ...]]:
    found: dict[PodShape, tuple[Domains, ...]] = {}
    for one in sorted(wire, key=lambda one: (one.wanted_index, one.rule_index)):
        shape = shapes[one.wanted_index]
        lowest = one.lowest if one.HasField("lowest") else None
        found[shape] = (*found.get(shape, ()), Domains(dict(one.counts), one.lowest_name, lowest))
    return found
