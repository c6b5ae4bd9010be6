"""The interceptor that continues traces in workflows and activities."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry import trace
from temporalio.api.common.v1 import Payload
from temporalio.contrib.opentelemetry import TracingInterceptor


class SampledTraces(TracingInterceptor):
    """Sends the context of sampled traces only: for all others workflows and activities make no spans at all."""

    def _context_to_headers(self, headers: Mapping[str, Payload]) -> Mapping[str, Payload]:
        if not trace.get_current_span().get_span_context().trace_flags.sampled:
            return headers
        return super()._context_to_headers(headers)
