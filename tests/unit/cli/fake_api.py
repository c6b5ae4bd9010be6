"""A Peloton API of canned answers on an ephemeral port, and an agent that serves files."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import grpc
from google.protobuf.message import Message

from peloton.api import service_names
from peloton.api.limits import _CONNECTION_WORDS
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.lookup import lookup_pb2
from peloton.api.v0.update.svc import update_svc_pb2
from peloton.api.v0.volume.svc import volume_svc_pb2
from peloton.api.v1alpha.admin.svc import admin_svc_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2
from peloton.api.v1alpha.watch.svc import watch_svc_pb2
from peloton.errors import ERRORS, Reason
from services.servers.grpc_errors import trailing_of

SERVICES = {
    "jobs": "peloton.api.job.JobManager",
    "bulk": service_names.BULK_SERVICE[0],
    "tasks": "peloton.api.task.TaskManager",
    "respools": "peloton.api.respool.ResourceManager",
    "job_table": service_names.JOB_TABLE_SERVICE[0],
    "lookup": service_names.LOOKUP_SERVICE[0],
    "gangs": service_names.GANG_SERVICE[0],
    "history": service_names.HISTORY_SERVICE[0],
    "explain": service_names.EXPLAIN_SERVICE[0],
    "migrations": service_names.MIGRATION_SERVICE[0],
    "mover": service_names.MOVER_SERVICE[0],
    "audit": service_names.AUDIT_SERVICE[0],
    "advice": service_names.ADVICE_SERVICE[0],
    "overview": service_names.OVERVIEW_SERVICE[0],
    "retention": service_names.RETENTION_SERVICE[0],
    "worker_versions": service_names.WORKER_VERSION_SERVICE[0],
    "rebalances": service_names.REBALANCE_SERVICE[0],
    "schedules": service_names.SCHEDULE_SERVICE[0],
    "maintenance": service_names.MAINTENANCE_SERVICE[0],
    "hosts": host_svc_pb2.DESCRIPTOR.services_by_name["HostService"].full_name,
    "updates": update_svc_pb2.DESCRIPTOR.services_by_name["UpdateService"].full_name,
    "volumes": volume_svc_pb2.DESCRIPTOR.services_by_name["VolumeService"].full_name,
    "services": stateless_svc_pb2.DESCRIPTOR.services_by_name["JobService"].full_name,
    "pods": pod_svc_pb2.DESCRIPTOR.services_by_name["PodService"].full_name,
    "watches": watch_svc_pb2.DESCRIPTOR.services_by_name["WatchService"].full_name,
    "access": service_names.ACCESS_SERVICE[0],
    "admin": admin_svc_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name,
}

Status = tuple[grpc.StatusCode, str] | tuple[grpc.StatusCode, str, tuple[tuple[str, str | bytes], ...]]
Answer = Message | Status | Callable[[Any], Message | Status] | Sequence[Message | Status]


class Call(NamedTuple):
    method: str  # as in "jobs.Create"
    request: Any
    headers: dict[str, str]
    time_left_s: float


def because(reason: Reason, code: grpc.StatusCode, text: str) -> Status:
    """Return a status with this reason."""
    return code, text, trailing_of(ERRORS[code.name](text).because(reason))


def trailing_metadata(answer: Status) -> tuple[tuple[str, str | bytes], ...]:
    """Return the metadata of a status: its own, or the general reason of its code, unless the words are those of the
    gRPC library, which found no server.
    """
    code, text = answer[:2]
    if len(answer) > 2:
        return answer[2]
    is_of_library = text.lower().startswith(_CONNECTION_WORDS)
    return trailing_of(ERRORS[code.name](text)) if code.name in ERRORS and not is_of_library else ()


class FakeApi:
    """Serves canned answers: ``api.answers["jobs.Get"] = [first, then, ...]`` are the answers of one method, and the
    last one is repeated. The answer of a stream is a list of messages, of which the last may be a status."""

    def __init__(self, options: list[tuple[str, int]] | None = None) -> None:
        self.answers: dict[str, list[Answer]] = {"lookup.FindJobs": [find_by_id]}
        self.calls: list[Call] = []
        self.server = grpc.server(futures.ThreadPoolExecutor(max_workers=2), options=options)
        for short, name in SERVICES.items():
            service_names.add_under_all_names(self.server, Servicer(self, short), (name,))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def answer(self, method: str, request: Any, context: Any) -> Any:
        headers = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        self.calls.append(Call(method, request, headers, context.time_remaining()))
        answers = self.answers.get(method, [(grpc.StatusCode.INTERNAL, f"no answer given for {method}")])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, tuple):
            context.set_trailing_metadata(trailing_metadata(answer))
            context.abort(*answer[:2])
        if isinstance(answer, list):
            return self.stream(answer, context)
        return answer

    def stream(self, answers: Sequence[Message | Status], context: Any) -> Iterator[Message]:
        for answer in answers:
            if isinstance(answer, tuple):
                context.set_trailing_metadata(trailing_metadata(answer))
                context.abort(*answer[:2])
            else:
                yield answer

    def requests(self, method: str) -> list[Any]:
        return [call.request for call in self.calls if call.method == method]

    def stop(self) -> None:
        self.server.stop(grace=None).wait()


def find_by_id(request: lookup_pb2.FindJobsRequest) -> lookup_pb2.FindJobsResponse:
    """Answers a lookup with one job that has the requested id, unless a test sets another answer."""
    return lookup_pb2.FindJobsResponse(
        jobs=[lookup_pb2.FoundJob(id=peloton_pb2.JobID(value=request.text), name=request.text)]
    )


class Servicer:
    def __init__(self, api: FakeApi, short: str) -> None:
        self.api, self.short = api, short

    def __getattr__(self, method: str) -> Any:
        return partial(self.api.answer, f"{self.short}.{method}")


class FakeAgent:
    """Serves ``files`` (path -> content) as a Mesos agent does: bytes that are not UTF-8 stand raw in its JSON, or
    are replaced if it ``is_lossy``, as with some agents."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.written_at: dict[str, float] = {}
        self.is_lossy = False
        self.on_read: Callable[[int], None] = lambda offset: None
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                agent.serve(self)

            def log_message(self, format: str, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host, self.port = "127.0.0.1", str(self.server.server_address[1])
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        url = urlsplit(handler.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        content = self.files.get(query["path"])
        body = b"no such file"
        if url.path == "/files/browse":
            below = [path for path in self.files if path.rpartition("/")[0] == query["path"]]
            content = body = json.dumps(
                [{"path": path, "mtime": self.written_at.get(path, 0.0)} for path in below]
            ).encode()
        elif content is not None and url.path == "/files/download":
            body = content
        elif content is not None and query["offset"] == "-1":
            body = json.dumps({"data": "", "offset": len(content)}).encode()
        elif content is not None:
            offset = int(query["offset"])
            self.on_read(offset)
            part = self.files[query["path"]][offset : offset + int(query["length"])]
            data = part.decode("utf-8", "replace" if self.is_lossy else "surrogateescape")
            text = json.dumps({"data": data, "offset": offset}, ensure_ascii=False)
            body = text.encode("utf-8", "surrogateescape")
        handler.send_response(200 if content is not None else 404)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
