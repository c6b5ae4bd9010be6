"""Spans of this process, with an exporter in memory."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased

from services.telemetry import state, traces
from services.telemetry.sampling import EntranceSampler
from services.telemetry.traces import WHAT, Origins, calling, record_batch, serving

SAMPLED = (("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), ("user-agent", "x"))
UNSAMPLED = (("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"),)


def export(monkeypatch: pytest.MonkeyPatch, ratio: float) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=ParentBased(EntranceSampler(ratio)))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(traces, "_TRACER", provider.get_tracer("test"))
    monkeypatch.setattr(state, "_on", {WHAT})
    return exporter


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    return export(monkeypatch, 1.0)


def test_a_call_of_a_role_continues_the_trace(exporter: InMemorySpanExporter) -> None:
    """The metadata of the call name the span that calls, in the trace of the client."""
    with serving("S/M", SAMPLED), calling("resmgr") as metadata:
        pass

    call, served = exporter.get_finished_spans()
    assert call.context is not None
    assert metadata == [("traceparent", f"00-4bf92f3577b34da6a3ce929d0e0e4736-{call.context.span_id:016x}-01")]
    assert (call.name, served.name) == ("call resmgr", "S/M")


@pytest.mark.parametrize(("ratio", "metadata", "count"), [(1.0, (), 1), (0.0, (), 0), (0.0, SAMPLED, 1)])
def test_calls_are_sampled_at_the_entrance(
    ratio: float, metadata: tuple[tuple[str, str], ...], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ratio decides about calls without a trace, and a caller with one decides itself."""
    exporter = export(monkeypatch, ratio)

    with serving("S/M", metadata):
        pass

    assert count == len(exporter.get_finished_spans())


def test_an_unsampled_caller_is_followed(exporter: InMemorySpanExporter) -> None:
    """A call whose client has decided against it is not recorded, and no role hears of a trace."""
    origins = Origins()

    with serving("S/M", UNSAMPLED), calling("resmgr") as metadata:
        origins.remember(["a"])

    assert (None, [], ()) == (metadata, origins.take(["a"]), exporter.get_finished_spans())


@pytest.mark.parametrize("text", ["", "00-x", "\0", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 100_000])
def test_a_malformed_trace_of_a_client_is_ignored(text: str, exporter: InMemorySpanExporter) -> None:
    """The call begins a trace of its own."""
    with serving("S/M", (("traceparent", text),)):
        pass

    (span,) = exporter.get_finished_spans()
    assert span.parent is None


def test_a_signal_begins_no_trace(exporter: InMemorySpanExporter) -> None:
    """Spans that are no calls of clients are recorded within a trace only."""
    with traces._TRACER.start_as_current_span("SignalWorkflow:changed"):
        pass

    assert exporter.get_finished_spans() == ()


def test_a_batch_is_one_span_with_links(exporter: InMemorySpanExporter) -> None:
    """A batch with pods of several traces is in the first trace, and links to the others."""
    origins = Origins()
    with serving("first", ()):
        origins.remember(["a", "b"])
        first = trace.get_current_span().get_span_context()
    with serving("second", ()):
        origins.remember(["c"])
        second = trace.get_current_span().get_span_context()
    exporter.clear()

    record_batch("reports", origins.take(["a", "b", "c", "unknown"], last=["a", "b", "c"]), {"RUNNING": 3})

    (span,) = exporter.get_finished_spans()
    assert span.parent is not None
    assert (first.span_id, [second.span_id]) == (span.parent.span_id, [one.context.span_id for one in span.links])
    assert origins.take(["a", "b", "c"]) == []


def test_what_is_remembered_is_bounded(exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest origins are forgotten beyond the limit."""
    monkeypatch.setattr(traces, "REMEMBERED_MAX", 2)
    origins = Origins()

    with serving("S/M", ()):
        for key in "abc":
            origins.remember([key])

    assert [0, 1, 1] == [len(origins.take([key])) for key in "abc"]


def test_nothing_is_traced_while_traces_are_off() -> None:
    """A process without an exporter makes no span, whatever a client sends."""
    with serving("S/M", SAMPLED), calling("resmgr") as metadata:
        assert not trace.get_current_span().get_span_context().is_valid
    assert metadata is None
