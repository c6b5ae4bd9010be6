"""The HTTP endpoint at which pods report latencies: ``POST /v1/latencies``, one JSON object per line.

Any client that reaches the port may report, so no input is trusted: requests are accepted or refused whole, with bounds
on bytes, lines, numbers, concurrent connections and the duration of each.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from functools import partial
from http import HTTPStatus
from typing import Any

from peloton.errors import InvalidArgument, ResourceExhausted
from peloton.lifecycle.latency import BOUND_MAX_MS
from peloton.model.advice import PodLatency
from peloton.model.ids import PodId, PodName, parse_job_id
from services.hostmgr.latency_reports import LatencyReports
from services.servers.bounded_http import BoundedHandler, BoundedHttpServer

PATH = "/v1/latencies"
BODY_BYTES_MAX = 1 << 20
LINES_MAX = 10_000
REQUESTS_MAX = 10**12
"""Limit of the requests that a pod may report."""
REQUEST_S_MAX = 10.0
CONNECTIONS_MAX = 32
BUSY_S = 1
STOP_PERIOD_S = 0.1
"""Seconds between checks of whether to stop."""
UNREAD_BYTES_MAX = 16 << 20
"""Limit of the bytes of a refused request that are read and discarded: a client cut off while sending does not read the
answer."""
RUN_DASHES = 6
"""Number of dashes in the id of a pod; its name has one fewer."""
_TIMES = ("p50_ms", "p95_ms", "p99_ms")
_FIELDS = {"pod", *_TIMES, "requests"}


BUSY = (
    f"HTTP/1.0 429 Too Many Requests\r\nRetry-After: {BUSY_S}\r\n\r\n"
    f"{CONNECTIONS_MAX} reports are being received, which is the limit\n"
).encode()


class TooLarge(Exception):
    """A request that is refused for its size."""


def reports_in(body: bytes) -> dict[PodName, PodLatency]:
    """Return the report of the last line of each pod. Raises TooLarge, and InvalidArgument naming the line."""
    lines = [line for line in body.split(b"\n") if line.strip()]
    if len(lines) > LINES_MAX:
        raise TooLarge(f"{len(lines)} lines, at most {LINES_MAX} are taken at once")
    return dict(_report(line, f"line {at}") for at, line in enumerate(lines, 1))


def _report(line: bytes, where: str) -> tuple[PodName, PodLatency]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise InvalidArgument(f"{where} is no JSON") from None
    if not isinstance(row, dict) or row.keys() != _FIELDS:
        raise InvalidArgument(f"{where}: want an object with pod, {', '.join(_TIMES)} and requests, and nothing else")
    times = [_time(row[name], f"{where}: {name}") for name in _TIMES]
    if times != sorted(times):
        raise InvalidArgument(f"{where}: want p50_ms <= p95_ms <= p99_ms, not {', '.join(map(str, times))}")
    requests = row["requests"]
    if type(requests) is not int or not 0 <= requests <= REQUESTS_MAX:
        raise InvalidArgument(f"{where}: requests: want a whole number from 0 to {REQUESTS_MAX}")
    return _pod(row["pod"], where), PodLatency(times[0], times[1], times[2], requests)


def _time(found: Any, where: str) -> float:
    if type(found) not in (int, float) or not 0 <= found <= BOUND_MAX_MS:
        raise InvalidArgument(f"{where}: want a number of milliseconds from 0 to {BOUND_MAX_MS}")
    return float(found)


def _pod(found: Any, where: str) -> PodName:
    """Return the name of the pod; the run in the report is ignored."""
    text = found if isinstance(found, str) else ""
    try:
        pod = PodId.parse(text) if text.count("-") == RUN_DASHES else PodName.parse(text)
        if parse_job_id(pod.job_id) != pod.job_id or str(pod) != text:
            raise ValueError
    except ValueError:
        raise InvalidArgument(f"{where}: pod: want JOB-INSTANCE or JOB-INSTANCE-RUN") from None
    return PodName(pod.job_id, pod.instance_id)


class _Handler(BoundedHandler):
    server: _Server

    def do_POST(self) -> None:
        if self.path != PATH:
            self._answer(HTTPStatus.NOT_FOUND, f"there is nothing at this path, reports go to {PATH}")
            return
        try:
            body = self._body()
            with self.working():
                reports = reports_in(body)
                self.server.reports.take(reports)
        except TimeoutError:
            late = f"not all of the request came within {self.server.request_s:g} s"
            self._answer(HTTPStatus.REQUEST_TIMEOUT, late)
        except InvalidArgument as error:
            self._answer(HTTPStatus.BAD_REQUEST, error.message)
        except TooLarge as error:
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error))
        except ResourceExhausted as error:
            self._answer(HTTPStatus.TOO_MANY_REQUESTS, error.message, error.retry_after_s)
        else:
            self._answer(HTTPStatus.OK, f"{len(reports)} pods")

    def _body(self) -> bytes:
        text = self.headers.get("Content-Length", "")
        if not (text.isascii() and text.isdigit()):
            raise InvalidArgument("want a Content-Length")
        if len(text) > len(str(BODY_BYTES_MAX)) or int(text) > BODY_BYTES_MAX:
            raise TooLarge(f"{text[:20]} bytes, at most {BODY_BYTES_MAX} are taken at once")
        body = self.rfile.read(int(text))
        if len(body) < int(text):
            raise InvalidArgument(f"{len(body)} of {text} bytes came")
        return body

    def _answer(self, status: HTTPStatus, text: str, retry_after_s: float | None = None) -> None:
        line = text.encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(line)))
        if retry_after_s is not None:
            self.send_header("Retry-After", f"{retry_after_s:.0f}")
        self.end_headers()
        self.wfile.write(line)
        if status is not HTTPStatus.OK:
            self._throw_rest_away()

    def _throw_rest_away(self) -> None:
        self.connection.shutdown(socket.SHUT_WR)
        count = 0
        while count < UNREAD_BYTES_MAX and (piece := self.rfile.read1(1 << 16)):
            count += len(piece)


class _Server(BoundedHttpServer):
    def __init__(
        self,
        address: tuple[str, int],
        reports: LatencyReports,
        request_s_max: float,
        context: ssl.SSLContext | None,
    ) -> None:
        self.reports, self._has_tls = reports, context is not None
        super().__init__(address, _Handler, CONNECTIONS_MAX, request_s_max, context)

    def refuse(self, request: Any) -> None:
        if not self._has_tls:
            request.settimeout(BUSY_S)
            request.sendall(BUSY)


class LatencyEndpoint:
    """The endpoint; serves from construction on. Port 0 picks one. Raises InvalidArgument when the port cannot be
    bound."""

    def __init__(
        self,
        host: str,
        port: int,
        reports: LatencyReports,
        request_s_max: float = REQUEST_S_MAX,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """``context``: of TLS; None: plain text."""
        try:
            self._server = _Server((host, port), reports, request_s_max, context)
        except OSError as error:
            raise InvalidArgument(f"PELOTON_LATENCY_PORT={port}: {error}") from error
        self.port = self._server.server_address[1]
        serve = partial(self._server.serve_forever, STOP_PERIOD_S)
        self._thread = threading.Thread(target=serve, name="latency endpoint", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
