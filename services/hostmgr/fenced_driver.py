"""Fence for drivers without one of their own: a leader that was frozen past its lease sends nothing to the cluster.

The drivers of Mesos and Kubernetes check the lease right before each message (``services/fence.py``). A driver of a
plugin opens its own connections, so the check is around its methods, except those that only read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from services.hostmgr.driver import Capabilities, ClusterDriver

READS = frozenset({"stop", "demand_met", "samples_of", "output_tail", "sandbox", "read_file", "next_run_in_s"})
"""Methods of drivers that send nothing which changes the cluster; ``stop`` ends a session."""
READS_OF_EXTERNAL_PODS = frozenset({"watch", "list_pods", "blocked_evictions"})
SILENT = frozenset({"return_resources", "request_capacity"})
"""Methods that never raise: a refused one returns False, as if nothing had happened."""


class Fenced:
    """Proxy of an object. Its methods, except ``reads``, raise ConnectionRefusedError while ``refusal`` returns a
    reason."""

    def __init__(self, inner: Any, refusal: Callable[[], str], reads: frozenset[str] = frozenset()) -> None:
        self._inner, self._refusal, self._reads = inner, refusal, reads

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return found if name in self._reads or not callable(found) else self._guard(name, found)

    def _guard(self, name: str, send: Callable[..., Any]) -> Callable[..., Any]:
        def send_as_leader(*args: Any, **named: Any) -> Any:
            if why := self._refusal():
                if name in SILENT:
                    return False
                raise ConnectionRefusedError(why)
            return send(*args, **named)

        return send_as_leader


class FencedDriver(Fenced):
    """A driver with its parts: image prefetcher and external pods."""

    @property
    def capabilities(self) -> Capabilities:
        found: Capabilities = self._inner.capabilities
        images, external = found.images, found.external_pods
        return replace(
            found,
            images=images and cast(Any, Fenced(images, self._refusal)),
            external_pods=external and cast(Any, Fenced(external, self._refusal, READS_OF_EXTERNAL_PODS)),
        )


def fence_driver(driver: ClusterDriver, refusal: Callable[[], str]) -> ClusterDriver:
    """Return the driver behind the fence."""
    return cast("ClusterDriver", FencedDriver(driver, refusal, READS))
