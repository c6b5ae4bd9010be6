"""Configuration, fixtures and hooks that all tests share."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.nodeid import coerce_node_id
from hypothesis import HealthCheck, settings

from tests import durations
from tests.kubernetes.fixtures import control_plane, kubernetes, kubernetes_login, machine
from tests.nightly import examples, mark_properties
from tests.reports import send_fewer
from tests.rewriting import find_modules, rewrite_share
from tests.sharing import Shared, group_of

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


asyncio.SelectorEventLoop.close = _close_loop_without_connections  # type: ignore[method-assign, assignment]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(durations.OPTION, action="store_true", help="write tests/durations.json at the end of the run")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(durations.OPTION) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(durations.Recorder())
    if hasattr(config, "workerinput"):
        send_fewer(config)


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    if run := getattr(config, "workerinput", None):
        folders = [path for argument in config.args if (path := Path(argument).absolute()).is_dir()]
        rewrite_share(config, find_modules(folders), int(run["workerid"].removeprefix("gw")), run["workercount"])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_properties(items)
    seconds = durations.load()
    items.sort(key=lambda item: durations.turn_of(item, seconds))


_SHARED = Shared()


@pytest.fixture(scope="session")
def shared() -> Shared:
    """Return what the tests of the group that runs share; it ends with the last test of the group."""
    return _SHARED


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    try:
        yield
    finally:
        if group_of(item) != group_of(nextitem):
            _SHARED.close()


def pytest_sessionfinish() -> None:
    """End what a run that was interrupted in the middle of a group has left. Then find the garbage once: pytest
    collects it twice, and would traverse all objects of the run each time.
    """
    _SHARED.close()
    gc.collect()
    gc.freeze()


def _keep_groups(items: list[pytest.Item]) -> None:
    """xdist 3.8 adds the group to an attribute of items that pytest 9.2 no longer reads: without this, tests of a group
    are distributed to all workers, and each worker starts the clusters of all of them.
    """
    for item in items:
        if (with_group := getattr(item, "_nodeid", "")) and with_group != item.nodeid:
            item._id = coerce_node_id(with_group)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Freeze the objects loaded so far, which live until the end, so that the garbage collector does not traverse
    them.
    """
    _keep_groups(session.items)
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)  # of small tests, most objects live as long as the run
    gc.enable()
