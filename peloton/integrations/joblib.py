"""The backend "peloton" of joblib, which importing this module registers.

import peloton.integrations.joblib
with joblib.parallel_config("peloton", n_jobs=50, address="localhost:5397", pool="/science"):
    joblib.Parallel()(joblib.delayed(simulate)(seed) for seed in range(10_000))
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from peloton.extras import missing_extra
from peloton.integrations.futures import PelotonExecutor

try:
    from joblib.parallel import AutoBatchingMixin, ParallelBackendBase, register_parallel_backend
except ImportError as missing:
    raise missing_extra("joblib", "joblib", "the backend of joblib") from missing


class PelotonBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Runs the calls of ``joblib.Parallel`` by an executor: the given one, or one that the options describe.

    Instances stay between calls of ``Parallel`` until they are idle for ``idle_s``. Negative ``n_jobs`` stand for
    ``instances_max``.
    """

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(
        self, executor: PelotonExecutor | None = None, nesting_level: int | None = None, **options: Any
    ) -> None:
        super().__init__(nesting_level=nesting_level)
        self._futures: weakref.WeakSet[Future[Any]] = weakref.WeakSet()
        self._executor, self._options = executor, options

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        if n_jobs == 0:
            raise ValueError("n_jobs is 0: want a number of instances, or -1 for instances_max of the executor")
        is_limited = n_jobs is not None and n_jobs > 0
        if self._executor is None:
            most = {"instances_max": n_jobs} if is_limited else {}
            self._executor = PelotonExecutor(**{"name": "joblib", **most, **self._options})
            weakref.finalize(self, self._executor.shutdown, wait=False)
        most_jobs = self._executor.instances_max
        return min(n_jobs, most_jobs) if n_jobs is not None and is_limited else most_jobs

    def submit(self, func: Callable[[], Any], callback: Callable[[Future[Any]], None] | None = None) -> Future[Any]:
        assert self._executor is not None
        future = self._executor.submit(func)
        self._futures.add(future)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel the calls that wait; those that run are not awaited."""
        for future in list(self._futures):
            future.cancel()


register_parallel_backend("peloton", PelotonBackend)
