"""Client of the public API for threads: stubs under the names of the wire, with defaults for every call.

    with Client("localhost:5397") as client:
        job_id = client.jobs.Create(request).jobId

Every call carries the headers that the original's servers require, ends after ``timeout_s`` unless the caller sets a
timeout, and is repeated where that is safe: see ``RetryPolicy``. Watches and streams of requests end when the caller
ends them. Errors are ``grpc.RpcError``; the caller has to check for errors inside a response. Thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import grpc

from peloton.api.mesos_access import OPEN, MesosAccess
from peloton.client.credentials import Credentials, find_headers
from peloton.client.repeats import WATCH_POLICY, Repeats, RetryPolicy, is_safe
from peloton.client.services import CHANNEL_OPTIONS, DEFAULT_ADDRESS, DEFAULT_TIMEOUT_S, Metadata, Services, target
from peloton.client.tls import Tls
from peloton.errors import Unavailable

if TYPE_CHECKING:
    from peloton.api.v1alpha.job.stateless.stateless_pb2 import JobSummary, UpdateSpec, WorkflowStatus
    from peloton.api.v1alpha.pod.pod_pb2 import PodSummary
    from peloton.api.v1alpha.watch.svc.watch_svc_pb2 import WatchRequest, WatchResponse
    from peloton.client.operations import JobLike, Progress
    from peloton.client.steps import Step, Steps
    from peloton.client.watching import Changes, Resumption, Selection

T = TypeVar("T")


class Client(Services):
    """Stubs for the services of one Peloton installation.

    ``address`` may name several APIs, separated by commas: calls go round robin to available ones. ``overrides`` sets
    the address of a service (JOBMGR, RESMGR, HOSTMGR); the others are at ``address``. ``timeout_s`` bounds each
    attempt of a call, ``retry`` the repeats. Without ``tls`` the environment or the file of the cluster says whether
    there is TLS: see ``find_tls``; ``agents`` is the access to agents of Mesos, which have the files of pods.
    ``token``, ``token_file``, or ``username`` and ``password`` identify the caller; without them the environment or
    the file of the cluster does: see ``find_credentials``. ``metadata`` returns the headers of each call instead.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        overrides: Mapping[str, str] | None = None,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], None] = time.sleep,
        tls: Tls | None = None,
        agents: MesosAccess = OPEN,
        metadata: Metadata | None = None,
        token: str = "",
        token_file: str = "",
        username: str = "",
        password: str = "",
    ) -> None:
        given = Credentials(token, token_file, username, password)
        super().__init__(address, timeout_s, overrides, tls, metadata or find_headers(address, given))
        self.agents = agents
        self.retry = retry or RetryPolicy()
        self.sleep = sleep
        self._channels: dict[str, grpc.Channel] = {}

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def channel(self, service: str, streams_end: bool = True) -> grpc.Channel:
        address = self.address_of(service)
        if address not in self._channels:
            self._channels[address] = self.opens.open(target(address), CHANNEL_OPTIONS)
        return grpc.intercept_channel(self._channels[address], CallDefaults(self, service, address, streams_end))

    # -- operations

    def submit(self, pool: str, config: JobLike, *, job_id: str = "") -> str:
        """Create a job in the pool with this path, and return its id.

        ``config`` is a JobConfig, a YAML file of one, a mapping with the keys of such a file, or the JobSpec of a
        service. A call whose answer was lost is repeated with the same id. A batch job that exists under ``job_id`` is
        left as it is: a program that chooses the ids can submit again after it was killed.

        Raises NotFound, InvalidArgument, ConfigError of peloton.api.yaml_config, OSError, grpc.RpcError.
        """
        from peloton.client import operations

        return self.run(operations.submit(pool, config, job_id))

    def progress(self, job_id: str) -> Progress:
        """Return the state of a job, and its tasks by state. Raises NotFound, grpc.RpcError."""
        from peloton.client import operations

        return self.run(operations.read_progress(job_id))

    def wait(self, job_id: str, timeout_s: float | None = None, policy: RetryPolicy = WATCH_POLICY) -> Progress:
        """Return the progress of a batch job at its end.

        Outages of the API of up to ``policy.away_s`` are waited for. Raises TimeoutError, NotFound, grpc.RpcError.
        """
        from peloton.client import operations

        return self.run(operations.wait(job_id, timeout_s, policy))

    def logs(self, job_id: str, instance: int = 0, file: str = "stdout", run_id: str = "") -> str:
        """Return the text of a file that a task has written, the last 16 MiB if it is larger.

        ``run_id`` is an earlier run as JOB-INSTANCE-RUN; empty: the current run. Raises NotFound, Aborted for a task
        that has not started, OSError of the agent that serves the file, grpc.RpcError.
        """
        from peloton.client import operations

        return self.run(operations.read_log(job_id, instance, file, run_id))

    def stop(self, job_id: str, instances: Sequence[int] = ()) -> None:
        """Stop a job, or only these instances of it. Raises NotFound, Aborted, grpc.RpcError."""
        from peloton.client import operations

        self.run(operations.stop(job_id, instances))

    def scale(self, job_id: str, instance_count: int, update: UpdateSpec | None = None) -> str:
        """Start an update of a service to this many instances, and return its key for ``wait_for_update``.

        ``update`` says how it is rolled out; without it, all at once. Raises InvalidArgument, grpc.RpcError.
        """
        from peloton.client import operations

        return self.run(operations.scale(job_id, instance_count, update))

    def wait_for_update(
        self, job_id: str, update_key: str, timeout_s: float | None = None, policy: RetryPolicy = WATCH_POLICY
    ) -> WorkflowStatus:
        """Return the status of an update at its end; the caller looks whether it has succeeded.

        Outages of the API of up to ``policy.away_s`` are waited for. Raises TimeoutError, NotFound, grpc.RpcError.
        """
        from peloton.client import operations

        return self.run(operations.wait_for_update(job_id, update_key, timeout_s, policy))

    def run(self, steps: Steps[T]) -> T:
        """Do the steps of an operation and return its result."""
        try:
            step = next(steps)
            while True:
                try:
                    result = self._do(step)
                except (grpc.RpcError, OSError) as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _do(self, step: Step) -> Any:
        from peloton.client.steps import Call, Sleep, fetch

        if isinstance(step, Call):
            answer = getattr(getattr(self, step.service), step.method)(step.request)
            return list(answer) if step.is_stream else answer
        return self.sleep(step.seconds) if isinstance(step, Sleep) else fetch(step, self.agents)

    # -- watches

    def watch(self, request: WatchRequest, policy: RetryPolicy = WATCH_POLICY) -> Iterator[WatchResponse]:
        """Yield the messages of a watch, which resumes after the last revision when it is cut off.

        Outages of up to ``policy.away_s`` are waited for; the first attempt follows the policy of the client. Raises
        grpc.RpcError: OUT_OF_RANGE for a revision that is not kept any more; Unavailable if the API ends the watch.
        """
        from peloton.client.watching import Resumption

        yield from self._resume(Resumption(request, self.retry, policy))

    def watch_pods(
        self, job_id: str, *, since: int = 0, policy: RetryPolicy = WATCH_POLICY
    ) -> Iterator[Changes[PodSummary]]:
        """Yield all pods of a service, and then changes of them, none of them lost and none twice.

        Without ``since``, and when the changes after it are not kept any more, the watch begins with a list: its
        ``is_all`` is set. What changed several times in a short while may come once. Raises grpc.RpcError.
        """
        from peloton.client.watching import PodSelection

        return self._watch_changes(PodSelection(job_id), since, policy)

    def watch_jobs(
        self,
        job_ids: Sequence[str] = (),
        *,
        labels: Mapping[str, str] | None = None,
        since: int = 0,
        policy: RetryPolicy = WATCH_POLICY,
    ) -> Iterator[Changes[JobSummary]]:
        """Yield services, of these ids or of all, that have the labels, and then changes: see ``watch_pods``."""
        from peloton.client.watching import JobSelection

        return self._watch_changes(JobSelection(job_ids, labels or {}), since, policy)

    def _watch_changes(self, selection: Selection, since: int, policy: RetryPolicy) -> Iterator[Changes[Any]]:
        from peloton.client.steps import list_all
        from peloton.client.watching import Resumption, changes_of

        watch = Resumption(selection.request(since), self.retry, policy, lists=True)
        for message in self._resume(watch):
            listed = None
            if watch.must_list:
                listed = self.run(list_all(policy, selection.listing))
            yield changes_of(watch, selection, message, listed)

    def _resume(self, watch: Resumption) -> Iterator[WatchResponse]:
        while True:
            stream = self.watches.Watch(watch.request)
            try:
                for message in stream:
                    if watch.note(message):
                        yield message
                raise Unavailable("the API ended the watch without a reason")
            except grpc.RpcError as error:
                wait_s = watch.next_wait_s(error)
                if wait_s is None:
                    raise
            finally:
                stream.cancel()
            self.sleep(wait_s)


class CallDetails(NamedTuple):
    """Details of a call for grpc, which requires only an object with these attributes."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None


@dataclass(frozen=True)
class CallDefaults(
    grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamUnaryClientInterceptor
):
    """Sets the timeout and the headers, and repeats calls."""

    client: Client
    service: str
    address: str
    streams_end: bool

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        is_repeatable = is_safe(client_call_details.method, request)
        return self.repeat(
            lambda: continuation(self.fill_in(client_call_details, self.client.timeout_s), request), is_repeatable
        )

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self.fill_in(client_call_details, self.stream_timeout_s), request)

    def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        """Repeat the call if its messages are no iterator, and so can be sent again."""

        def call() -> Any:
            return continuation(self.fill_in(client_call_details, self.stream_timeout_s), iter(request_iterator))

        return call() if isinstance(request_iterator, Iterator) else self.repeat(call, is_repeatable=False)

    @property
    def stream_timeout_s(self) -> float | None:
        return self.client.timeout_s if self.streams_end else None

    def repeat(self, send: Callable[[], Any], is_repeatable: bool) -> Any:
        repeats = Repeats(self.client.retry, is_repeatable)
        while True:
            call = send()
            if call.code() is grpc.StatusCode.OK:
                return call
            wait_s = repeats.next_wait_s(call)
            if wait_s is None:
                return call
            self.client.sleep(wait_s)

    def fill_in(self, details: Any, timeout_s: float | None) -> CallDetails:
        self.client.last_address = self.address
        return CallDetails(
            method=details.method,
            timeout=timeout_s if details.timeout is None else details.timeout,
            metadata=[*(details.metadata or ()), *self.client.headers_of(self.service)],
            credentials=details.credentials,
            wait_for_ready=getattr(details, "wait_for_ready", None),
            compression=getattr(details, "compression", None),
        )
