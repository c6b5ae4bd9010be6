"""`/minicluster/sandboxes`: what is kept of runs that have ended. Mesos has no such endpoint.

A framework that begins the ids of tasks with what they belong to, such as JOB-3-1, sees them together with `cut=2`:
the last two parts are cut off.
"""

from __future__ import annotations

from urllib.parse import parse_qs

import orjson

from services.minicluster.agents.sandbox_collector import Collector
from services.minicluster.http.cross_site import body_fault
from services.minicluster.http.server import Request, Response, json_response, plain

PATH = "/minicluster/sandboxes"
CUT_MAX = 10


class SandboxesApi:
    """GET counts sandboxes by executor; POST removes those of some executors."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def handle(self, request: Request) -> Response:
        cut = parse_qs(request.query).get("cut", ["0"])[-1]
        if not (cut.isdigit() and int(cut) <= CUT_MAX):
            return plain(400, f"Expected cut=N with 0 <= N <= {CUT_MAX}, got {cut!r}")
        if request.method == "GET":
            return json_response(orjson.dumps({"executors": self._collector.counts(int(cut))}))
        if request.method != "POST":
            return plain(405, f"Sandboxes are listed with GET and removed with POST, not {request.method}")
        if (fault := body_fault(request.headers)) is not None:
            return plain(415, fault)
        try:
            body = orjson.loads(request.body)
        except orjson.JSONDecodeError as error:
            return plain(400, f"The body is not JSON: {error}")
        executors = body.get("executors") if isinstance(body, dict) else None
        if not isinstance(executors, list) or not all(isinstance(executor, str) for executor in executors):
            return plain(400, 'Expected {"executors": ["ID", ...]}')
        return json_response(orjson.dumps({"removed": self._collector.remove(frozenset(executors), int(cut))}))
