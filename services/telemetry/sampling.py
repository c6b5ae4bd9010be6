"""The sampler of spans without a parent."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult, TraceIdRatioBased
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

from services.telemetry.state import METHOD


class EntranceSampler(Sampler):
    """Samples a share of the calls of clients; other spans without a parent, such as signals, begin no trace."""

    def __init__(self, ratio: float) -> None:
        self._calls = TraceIdRatioBased(ratio)

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        if METHOD not in (attributes or {}):
            return SamplingResult(Decision.DROP)
        return self._calls.should_sample(
            parent_context, trace_id, name, kind=kind, attributes=attributes, links=links, trace_state=trace_state
        )

    def get_description(self) -> str:
        return "calls of clients"
