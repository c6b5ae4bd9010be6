"""An executor of ``concurrent.futures`` whose workers are the instances of a job.

    with PelotonExecutor("localhost:5397", "/science", instances_max=50) as executor:
        results = list(executor.map(simulate, range(10_000)))

Instances follow the number of calls, between ``instances_min`` and ``instances_max``. Each runs one call at a time, and
connects to this process, which the hosts must reach. The calls of an instance that is lost are repeated on others. The
job ends with the executor, and by Ctrl-C.
"""

from __future__ import annotations

import atexit
import logging
import secrets
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc

from peloton.client import DEFAULT_ADDRESS, Client
from peloton.errors import PelotonError
from peloton.extras import missing_extra
from peloton.integrations import futures_worker
from peloton.integrations.futures_calls import Call, Calls
from peloton.integrations.futures_server import ResultServer
from peloton.integrations.instances import Counts, Instances, InstanceSpec, local_address

try:
    import cloudpickle
except ImportError as missing:
    raise missing_extra("futures", "cloudpickle", "PelotonExecutor") from missing

log = logging.getLogger(__name__)

TICK_S = 0.2
POLL_S = 2.0
"""Seconds between two looks at the job."""
QUIET_S = 30.0
"""Seconds without a worker after which the log says where to look."""
END_S = 5.0
"""Seconds in which workers end by themselves before the job is stopped."""
PERMANENT = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.PERMISSION_DENIED)
SOURCE = "PELOTON_FUTURES_WORKER"


class PelotonExecutor(Executor):
    """Runs calls on instances of a job in the pool.

    ``spec`` has the resources of an instance and its image; its command is set here. ``python`` is the interpreter in
    the pod: that of this process on the files of the host, ``python3`` in an image. It needs cloudpickle, and the minor
    version of this process. ``host`` is the name or number at which pods reach this process: by default the one from
    which it reaches the API. A call fails when its instance was lost more than ``repeats_max`` times.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        pool: str = "/",
        *,
        instances_max: int = 8,
        instances_min: int = 0,
        spec: InstanceSpec | None = None,
        name: str = "futures",
        owner: str = "",
        python: str = "",
        host: str = "",
        port: int = 0,
        idle_s: float = 30.0,
        repeats_max: int = 3,
    ) -> None:
        if not 0 <= instances_min <= instances_max or not instances_max:
            raise ValueError(
                f"instances_min is {instances_min}, instances_max {instances_max}: want 0 <= min <= max > 0"
            )
        self.instances_max, self._instances_min = instances_max, instances_min
        self._calls = Calls(repeats_max)
        token = secrets.token_hex(32)
        self._server = ResultServer(
            self._calls,
            token.encode(),
            local_address=local_address(address),
            host=host,
            port=port,
            workers_min=instances_min,
            workers_max=instances_max,
            idle_s=idle_s,
        )
        self._client = Client(address)
        try:
            command = worker_spec(spec or InstanceSpec(), python, self._server.address, token)
            self._instances = Instances(self._client, pool, name, command, owner=owner)
        except BaseException:
            self._close()
            raise
        self._wake, self._is_terminated = threading.Event(), False
        self._job_with_calls = ""
        self._controller = threading.Thread(target=self._control, name="peloton-executor", daemon=True)
        self._controller.start()
        atexit.register(self.terminate)

    @property
    def job_id(self) -> str:
        """The id of the job; empty while no call needs one."""
        return self._instances.job_id

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        function = fn.content if isinstance(fn, Pickled) else cloudpickle.dumps(fn)
        call = Call(function, cloudpickle.dumps((args, kwargs)))
        self._calls.put(call)
        self._wake.set()
        return call.future

    def map(
        self, fn: Callable[..., Any], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[Any]:
        """Call the function for each item, as the base class does. ``chunksize`` has no effect: batches form by
        themselves, by the duration of calls."""
        return super().map(Pickled(fn), *iterables, timeout=timeout)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; the job ends when those that were taken have results."""
        self._calls.close(cancel_futures)
        self._wake.set()
        if wait:
            self._controller.join()

    def terminate(self) -> None:
        """Cancel the waiting calls and stop the job, with the calls that run."""
        self._is_terminated = True
        self.shutdown(cancel_futures=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for all results, or stop the job after Ctrl-C and the like."""
        if error is None or isinstance(error, Exception):
            self.shutdown(cancel_futures=error is not None)
        else:
            self.terminate()

    def _control(self) -> None:
        """Let instances follow calls until the last one has ended."""
        polled_s = quiet_s = time.monotonic() - POLL_S
        asked = 0
        while not self._is_terminated:
            self._wake.wait(POLL_S)
            self._wake.clear()
            time.sleep(TICK_S)  # calls that come together ask for instances together
            outstanding, now_s = self._calls.outstanding(), time.monotonic()
            if self._calls.is_closed and not outstanding:
                break
            if not outstanding or self._server.worker_count:
                quiet_s = now_s
            elif now_s - quiet_s > QUIET_S:
                log.warning("no instance of job %s has connected: see `peloton job why %s`", self.job_id, self.job_id)
                quiet_s = now_s
            wanted = min(max(outstanding, self._instances_min), self.instances_max)
            if wanted > asked or now_s - polled_s > POLL_S:
                asked, polled_s = self._follow(wanted, bool(outstanding)), now_s
        self._end()

    def _follow(self, wanted: int, has_calls: bool) -> int:
        """Add the instances that are missing; return how many there are then. All calls fail if the job cannot run."""
        try:
            counts = self._instances.count()
            if counts is not None and has_calls and (fault := self._fault(counts)):
                self._calls.break_off(fault)
                return wanted
            asked = 0 if counts is None or counts.has_ended else count_wanted(counts)
            self._instances.add(wanted - asked)
            self._job_with_calls = self.job_id if has_calls else ""
            return max(asked, wanted)
        except PelotonError as error:
            self._calls.break_off(f"the job was refused: {error}")
        except grpc.RpcError as error:
            text = f"{error.code().name}: {error.details()}"
            if error.code() in PERMANENT:
                self._calls.break_off(f"the job was refused: {text}")
            log.warning("the API does not answer, and is asked again: %s", text)
        return 0

    def _fault(self, counts: Counts) -> str:
        """Return why the job cannot run the calls that wait, if it has ended with them."""
        if not counts.has_ended or counts.state == "SUCCEEDED" or self._job_with_calls != self.job_id:
            return ""
        failed = next((one for one in self._instances.read() if one.state == "FAILED"), None)
        if failed is None:
            return f"job {self.job_id} was stopped"
        see = f"`peloton task logs {self.job_id} {failed.number} -f stderr` has the reason"
        return f"all instances of job {self.job_id} have failed, instance {failed.number} by {failed.message!r}: {see}"

    def _end(self) -> None:
        """Wait until the workers have ended, or stop the job."""
        if self._is_terminated:
            self._calls.break_off("the executor was shut down")  # the calls that run, whose workers end now
            self._server.close()  # before the job, so that workers do not finish their calls
        try:
            until_s = time.monotonic() + (0 if self._is_terminated else END_S)
            while (counts := self._instances.count()) is not None and not counts.has_ended:
                if time.monotonic() >= until_s or counts.alive_count > self._server.worker_count > 0:
                    self._instances.stop_all()
                    break
                time.sleep(TICK_S)
        except (grpc.RpcError, PelotonError) as error:
            log.warning("job %s may still run: %s", self.job_id, error)
        finally:
            self._close()
            atexit.unregister(self.terminate)

    def _close(self) -> None:
        self._server.close()
        self._client.close()


class Pickled:
    """A function that is pickled once for many calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.content = cloudpickle.dumps(function)

    def __call__(self) -> None:
        raise NotImplementedError


def worker_spec(spec: InstanceSpec, python: str, address: str, token: str) -> InstanceSpec:
    """Return the instance with the command of a worker."""
    python = spec.interpreter(python)
    source = Path(futures_worker.__file__).read_text(encoding="utf-8")
    return replace(
        spec,
        command=f'exec {shlex.quote(python)} -c "${SOURCE}" {shlex.quote(address)}',
        environment={**spec.environment, SOURCE: source, futures_worker.TOKEN: token},
    )


def count_wanted(counts: Counts) -> int:
    """Return the instances that run or have failed: more of them would not do better."""
    return counts.instance_count - counts.by_state.get("SUCCEEDED", 0) - counts.by_state.get("KILLED", 0)
