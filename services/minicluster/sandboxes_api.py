"""`/minicluster/sandboxes`: what is kept of runs that have ended. Mesos has no such endpoint."""

from __future__ import annotations

import orjson

from services.minicluster.collector import Collector
from services.minicluster.cross_site import body_fault
from services.minicluster.http import Request, Response, json_response, plain

PATH = "/minicluster/sandboxes"


class SandboxesApi:
    """GET tells of which jobs sandboxes are kept; POST removes those of some, which nobody knows any more."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def handle(self, request: Request) -> Response:
        if request.method == "GET":
            return json_response(orjson.dumps({"jobs": self._collector.jobs()}))
        if request.method != "POST":
            return plain(405, f"Sandboxes are listed with GET and removed with POST, not {request.method}")
        if (fault := body_fault(request.headers)) is not None:
            return plain(415, fault)
        try:
            body = orjson.loads(request.body)
        except orjson.JSONDecodeError as error:
            return plain(400, f"The body is not JSON: {error}")
        jobs = body.get("jobs") if isinstance(body, dict) else None
        if not isinstance(jobs, list) or not all(isinstance(job, str) for job in jobs):
            return plain(400, 'Expected {"jobs": ["JOB", ...]}')
        return json_response(orjson.dumps({"removed": self._collector.remove(frozenset(jobs))}))
