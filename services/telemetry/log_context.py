"""Fields of JSON logs that hold in the context of a call or an activity, such as the job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from opentelemetry import trace

_FIELDS: ContextVar[Mapping[str, str]] = ContextVar("log fields")
_NONE: Mapping[str, str] = {}


@contextmanager
def about(**fields: str) -> Iterator[None]:
    """Add fields, such as ``job``, to the log lines of the block."""
    token = _FIELDS.set({**_FIELDS.get(_NONE), **fields})
    try:
        yield
    finally:
        _FIELDS.reset(token)


def list_fields() -> dict[str, str]:
    """Return the fields of this context, with the ids of its trace."""
    found = dict(_FIELDS.get(_NONE))
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        found |= {"trace_id": trace.format_trace_id(span.trace_id), "span_id": trace.format_span_id(span.span_id)}
    return found
