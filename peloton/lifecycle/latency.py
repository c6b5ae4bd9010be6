"""Bounds of reported latencies, which a job sets by labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from peloton.model.advice import LatencyBounds
from peloton.model.text import quote

BOUND_MAX_MS = 3_600_000
LABELS = {f"peloton/{one.name.replace('_', '-')}": one.name for one in fields(LatencyBounds)}
"""Labels peloton/p95-orange-ms, peloton/p95-red-ms, peloton/p99-orange-ms and peloton/p99-red-ms, with their fields."""


def latency_bounds(labels: Mapping[str, str], default: LatencyBounds) -> LatencyBounds:
    """Return the bounds of a job; an invalid label counts as absent."""
    found = {name: int(labels[key]) for key, name in LABELS.items() if not _find_fault(labels.get(key, ""))}
    return LatencyBounds(**{one.name: found.get(one.name, getattr(default, one.name)) for one in fields(LatencyBounds)})


def bounds_refusal(labels: Mapping[str, str]) -> str:
    """Return why the bounds in the labels of a job are invalid; empty if they are valid."""
    return next(
        (f"label {key}: {fault}" for key in LABELS if key in labels and (fault := _find_fault(labels[key]))), ""
    )


def _find_fault(text: str) -> str:
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(BOUND_MAX_MS))
    if is_number and int(text) <= BOUND_MAX_MS:
        return ""
    return f"{quote(text)} is no number of milliseconds, want 0 to {BOUND_MAX_MS}"
