"""Traces: spans of a call in all roles that it reaches, sampled at its first span, and sent by OTLP.

A span covers a batch, never a pod: what happens later to the pods of a traced launch is one span for each batch of
reports, with links to the launches beyond the first. Without ``start_traces`` nothing here costs more than
a comparison.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanContext, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from services.telemetry import state

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace.export import SpanExporter

WHAT = "traces"
REMEMBERED_MAX = 10_000
"""Limit of the traced jobs and pods that a process remembers; the oldest ones are forgotten."""
LINKS_MAX = 100
_PROPAGATOR = TraceContextTextMapPropagator()
_TRACER = trace.get_tracer("peloton")
_KEYS = {"traceparent", "tracestate"}


def start_traces(exporter: SpanExporter, ratio: float, own: Mapping[str, str], is_entrance: bool) -> None:
    """Sample this share of the calls that enter Peloton here, and follow the decision of a caller that has one.
    ``is_entrance``: this process serves clients, so that its spans may begin a trace.
    """
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

    from services.telemetry.sampling import EntranceSampler

    roots = EntranceSampler(ratio) if is_entrance else ALWAYS_OFF
    provider = TracerProvider(sampler=ParentBased(roots), resource=Resource.create(dict(own)))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    state.turn_on(WHAT)


@contextmanager
def serving(method: str, metadata: Any) -> Iterator[None]:
    """Trace a call that is served, as part of its caller's trace if the metadata names one."""
    if not state.has(WHAT):
        yield
        return
    carrier = {key: str(value) for key, value in metadata or () if key in _KEYS}
    parent = _PROPAGATOR.extract(carrier)
    with _TRACER.start_as_current_span(method, parent, SpanKind.SERVER, {state.METHOD: method}):
        yield


@contextmanager
def calling(peer: str) -> Iterator[list[tuple[str, str]] | None]:
    """Trace a call of another role, within a sampled trace; yields the metadata to send."""
    if not state.has(WHAT) or not _is_sampled():
        yield None
        return
    with _TRACER.start_as_current_span(f"call {peer}", kind=SpanKind.CLIENT):
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        yield list(carrier.items())


class Origins:
    """Remembers in whose trace something began, by its key. Any thread may call."""

    def __init__(self) -> None:
        self._found: dict[Any, SpanContext] = {}
        self._lock = Lock()

    def remember(self, keys: Iterable[Any]) -> None:
        """Remember that these began in the current trace, if it is sampled."""
        if not state.has(WHAT) or not _is_sampled():
            return
        origin = trace.get_current_span().get_span_context()
        with self._lock:
            self._found.update(dict.fromkeys(keys, origin))
            while len(self._found) > REMEMBERED_MAX:
                del self._found[next(iter(self._found))]

    def take(self, keys: Iterable[Any], last: Iterable[Any] = ()) -> list[SpanContext]:
        """Return the distinct origins of these, and forget those in ``last``."""
        if not self._found:
            return []
        with self._lock:
            found = {(one.trace_id, one.span_id): one for key in keys if (one := self._found.get(key)) is not None}
            for key in last:
                self._found.pop(key, None)
        return list(found.values())


def record_batch(name: str, origins: Sequence[SpanContext], attributes: Mapping[str, int | str]) -> None:
    """Record one span that ends now: a child of the first origin, with links to the others."""
    if not origins:
        return
    first, *others = origins
    links = [Link(one) for one in others[:LINKS_MAX]]
    _TRACER.start_span(name, _context_of(first), attributes=dict(attributes), links=links).end()


def _context_of(origin: SpanContext) -> Context:
    return trace.set_span_in_context(trace.NonRecordingSpan(origin), contexts.Context())


def _is_sampled() -> bool:
    span: Span = trace.get_current_span()
    return span.get_span_context().trace_flags.sampled
