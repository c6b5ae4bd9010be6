"""What all tests share."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from typing import Any

import pytest
from _pytest.nodeid import coerce_node_id
from hypothesis import HealthCheck, settings

from tests.kubernetes.fixtures import control_plane, kubernetes, kubernetes_login, machine
from tests.nightly import examples, mark_properties

__all__ = ["control_plane", "kubernetes", "kubernetes_login", "machine"]  # here, so that all folders share them

gc.disable()  # until all tests are collected

# No deadlines: a slow machine is not a failure. In CI the same examples every time, so that a red run can be repeated;
# everywhere else new ones.
settings.register_profile(
    "peloton",
    deadline=None,
    max_examples=examples(100),
    derandomize=bool(os.environ.get("CI")),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("peloton")

# A runner that was started in the background ignores Ctrl-C, and so would all processes that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A connection that is open when its event loop ends fails the test that opened it. Otherwise the garbage collector
# finds it at some later time, and its warning fails the test that runs then.
_close_loop = asyncio.SelectorEventLoop.close


def _close_loop_without_connections(loop: Any) -> None:
    left = [] if loop.is_closed() else [t for t in loop._transports.values() if t._sock is not None]
    for transport in left:
        transport.abort()
        loop.run_until_complete(asyncio.sleep(0))
    _close_loop(loop)
    assert not left, f"connections left open: {left}"


asyncio.SelectorEventLoop.close = _close_loop_without_connections  # type: ignore[method-assign]


LONGEST_FIRST = (
    "services",
    "workflow-server",
    "batch",
    "faults",
    "real-kubernetes",
    "browser",
    "kubernetes",
    "both kinds",
    "maintenance",
    "stories",
    "gangs",
    "clusters",
    "pressure",
    "preemption",
    "host pools",
    "volume-life",
    "real-kubelet",
    "host-trouble",
    "upgrade",
    "kubernetes-faults",
    "random-life",
)
"""Groups of tests (``xdist_group``) that take a minute or more. All groups start before the many short tests, which
fill the gaps: one that began late would be all that runs in the end."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_properties(items)
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    mark = item.get_closest_marker("xdist_group")
    if mark is None:
        return len(LONGEST_FIRST) + 1
    return LONGEST_FIRST.index(mark.args[0]) if mark.args[0] in LONGEST_FIRST else len(LONGEST_FIRST)


def _keep_groups(items: list[pytest.Item]) -> None:
    """xdist 3.8 adds the group to an attribute of items that pytest 9.2 no longer reads: without this, tests of a group
    are dealt out to all workers, and each worker starts the clusters of all of them."""
    for item in items:
        if (with_group := getattr(item, "_nodeid", "")) and with_group != item.nodeid:
            item._id = coerce_node_id(with_group)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """What was loaded up to here stays until the end: the garbage collector need not look through it each time."""
    _keep_groups(session.items)
    gc.freeze()
    gc.enable()
