"""Interceptors that measure and trace the calls that a server answers; there are none while telemetry is off."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import grpc
import grpc.aio

from services.servers.grpc_handlers import AroundCalls, AroundCallsOnThreads, within
from services.telemetry import state
from services.telemetry.metrics import counter, histogram
from services.telemetry.traces import serving

_CALLS = counter("peloton.grpc.calls")
_DURATIONS = histogram("peloton.grpc.duration")
_SIZES = histogram("peloton.grpc.request_size")
_CODES = {code.value[0]: code.name for code in grpc.StatusCode}
OK, CANCELLED, UNKNOWN = grpc.StatusCode.OK.name, grpc.StatusCode.CANCELLED.name, grpc.StatusCode.UNKNOWN.name


def measure_calls() -> list[grpc.aio.ServerInterceptor]:
    """Return the interceptors of an asynchronous server; the first ones of its list."""
    return [MeasuredCalls()] if state.is_on() else []


def measure_threads() -> list[grpc.ServerInterceptor]:
    """Return the interceptors of a server with threads."""
    return [MeasuredCallsOfThreads()] if state.is_on() else []


class MeasuredCalls(AroundCalls):
    """Interceptor round all others: it sees the status that they make of an error."""

    def wrap(self, method: str, handler: Any) -> Any:
        name = method.removeprefix("/")
        is_one = not handler.request_streaming
        is_unary = is_one and not handler.response_streaming

        @asynccontextmanager
        async def measure(request: Any, context: Any) -> AsyncIterator[Any]:
            began_s, code = time.perf_counter(), OK
            try:
                # A stream may be closed in another context than the one that opened it, so streams have no span.
                with serving(name, context.invocation_metadata()) if is_unary else nullcontext():
                    yield request
                code = _code_of(context.code(), OK)
            except asyncio.CancelledError:
                code = CANCELLED
                raise
            except BaseException:
                code = _code_of(context.code(), UNKNOWN)
                raise
            finally:
                _record(name, code, time.perf_counter() - began_s if is_unary else None)
                if is_one and request.first_bytes is not None:
                    _SIZES.record(request.first_bytes)

        return within(handler, measure, handler.request_deserializer)


class MeasuredCallsOfThreads(AroundCallsOnThreads):
    """The same for a server with threads, whose methods are all unary."""

    def wrap(self, method: str, handler: Any) -> Any:
        name = method.removeprefix("/")

        def answer(request: Any, context: Any) -> Any:
            began_s, code = time.perf_counter(), OK
            try:
                with serving(name, context.invocation_metadata()):
                    return handler.unary_unary(request, context)
            except BaseException:
                code = _code_of(context.code(), UNKNOWN)
                raise
            finally:
                _record(name, code, time.perf_counter() - began_s)

        make: Any = grpc.unary_unary_rpc_method_handler
        return make(answer, handler.request_deserializer, handler.response_serializer)


def _record(method: str, code: str, duration_s: float | None) -> None:
    _CALLS.add(1, {"method": method, "code": code})
    if duration_s is not None:
        _DURATIONS.record(duration_s, {"method": method})


def _code_of(found: Any, otherwise: str) -> str:
    """Return the name of a status, which contexts give as a number or as a code; ``otherwise`` when there is none."""
    if isinstance(found, grpc.StatusCode):
        return found.name
    return _CODES.get(found, otherwise) if found else otherwise
