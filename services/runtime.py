"""Runs roles in this process: settings, logs, health, clients, and the end."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peloton.errors import PelotonError, Unavailable
from peloton.extras import require_extra
from peloton.lifecycle.backoff import Backoff
from services import role_settings
from services.announcement import announcing
from services.health import ProcessHealth, heartbeat, probing
from services.leader import LeaderChannels
from services.plugins import load_plugins
from services.processes import reporting
from services.roles.api import run_api
from services.roles.hostmgr import run_hostmgr
from services.roles.resmgr import run_resmgr
from services.roles.shared import Shared, sdk_metrics_address
from services.roles.worker import run_worker
from services.secrets.stores import make_converter, make_store, open_keyring
from services.settings import Settings, load
from services.storage import schema_version
from services.storage.storage import Storage
from services.telemetry.start import configure as configure_telemetry
from services.telemetry.start import show_expiry
from services.temporal import connection as temporal_connection
from services.temporal.renewal import renewing
from services.tls.settings import read_transport
from services.tls.transport import Transport
from workflows.policies import Policies

if TYPE_CHECKING:
    from services.election.zookeeper import Access, ZooKeeper

log = logging.getLogger(__name__)

WEB, BRIDGE = "web", "aurorabridge"
EXTRAS = {WEB: ("web", "starlette"), BRIDGE: ("aurora", "thriftpy2")}
"""The roles that need an extra, each with its name and one of its packages."""
EXPIRY_CHECK_S = 3600.0
"""Seconds between checks whether the certificate of this process expires soon."""
FILES_MAX = 65_536
"""File descriptors that a process may have, where its hard limit is not lower: each connection takes one."""
ARENAS_MAX = 2
"""Arenas of glibc's allocator, which else has eight for each core and keeps memory that was freed in each of them. More
than two threads seldom allocate at the same time."""
_M_ARENA_MAX = -8  # of malloc.h
GARBAGE = (100_000, 20, 50)
"""Thresholds of the garbage collector. With Python's defaults it scans long-lived pods and hosts again and again; a
batch of a thousand reports alone makes 20,000 objects, none of them garbage."""


def upgrade_schema(config: str = "") -> tuple[str, str]:
    """Upgrade the schema of the database that the settings name. Returns the versions before and after.

    Raises Unavailable, and InvalidSettings when the settings name no database.
    """
    from services.storage import migrate

    database = load(config=config).require_database()
    before = schema_version.of(database)
    migrate.upgrade(database)
    return before, schema_version.of(database)


def check_store(config: str = "") -> tuple[list[dict[str, Any]], int]:
    """Check the rows of the database that the settings name. Returns the findings and the number of rules.

    Raises Unavailable, and InvalidSettings when the settings name no database.
    """
    from services.storage.checks import CHECKS, Checks

    url = load(config=config).require_database()
    schema_version.check(url)
    db = schema_version.open_database(url)
    try:
        findings = list(Checks(db).findings())
    finally:
        db.close()
    found = [
        {
            "table": one.check.table,
            "rule": one.check.rule,
            "count": one.count,
            "first_ids": list(one.first_ids),
            "is_note": one.check.is_note,
        }
        for one in findings
    ]
    return found, len(CHECKS)


def run(roles: Sequence[str], upgrade: bool = False, config: str = "") -> None:
    """Run roles until SIGTERM or SIGINT. Ends the process with code 1 when one of them fails.

    Raises InvalidSettings before anything starts. ``config``: the file of settings.
    """
    _limit_arenas()
    settings = role_settings.load_for(roles, config=config)
    configure_telemetry(settings, list(dict.fromkeys(roles)))
    _raise_file_limit()
    failed = False
    try:
        with asyncio.Runner() as runner:
            runner.run(_run(settings, roles, upgrade))
    except* PelotonError as group:
        failed = True
        for error in group.exceptions:
            # Another process leads, or a dependency does not answer: the supervisor starts this one again.
            log.log(logging.WARNING if isinstance(error, Unavailable) else logging.ERROR, "%s", error)
    if failed:
        sys.exit(1)


async def _run(settings: Settings, roles: Sequence[str], upgrade: bool) -> None:
    health, transport = ProcessHealth(roles), read_transport(settings)
    async with AsyncExitStack() as stack:
        expiry = asyncio.create_task(_watch_expiry(transport), name="expiry of the certificate")
        stack.callback(expiry.cancel)
        if settings.health_file:
            await stack.enter_async_context(heartbeat(health, Path(settings.health_file)))
        await _run_roles(settings, roles, upgrade, health, transport)


async def _run_roles(
    settings: Settings, roles: Sequence[str], upgrade: bool, health: ProcessHealth, transport: Transport
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    clients = [role for role in CLIENTS if role in roles]
    for role in clients:
        require_extra(*EXTRAS[role], f"role {role}")
    if len(clients) == len(set(roles)):
        async with announcing(clients, settings, transport), asyncio.TaskGroup() as group:
            for role in clients:
                serving = CLIENTS[role](settings, stop, partial(health.note, role, ""), transport)
                group.create_task(serving, name=role)
            await asyncio.sleep(0)
            _collect_garbage()
        return
    load_plugins()
    database = settings.require_database()
    read_temporal = partial(temporal_connection.connect_config, settings.temporal, settings.temporal_namespace)
    config = read_temporal()
    identity = "+".join(dict.fromkeys(roles))
    if upgrade:
        from services.storage import migrate

        await asyncio.to_thread(migrate.upgrade, database)
    await asyncio.to_thread(schema_version.check, database)
    retries = Backoff(settings.retry_wait_s, settings.retry_wait_max_s)
    keyring = open_keyring(settings)
    storage = Storage(
        database,
        pool_size=settings.database_pool,
        batch_backoff=retries,
        secrets=make_store(settings, keyring),
    )
    access = role_settings.read_zookeeper(settings)
    zookeeper = _join_zookeeper(access, settings.leader_ttl_s) if access else None
    channels = LeaderChannels(zookeeper.directory(storage.leases) if zookeeper else storage.leases, transport)
    try:
        client = await temporal_connection.connect(
            config,
            identity,
            metrics_address=sdk_metrics_address(settings),
            converter=make_converter(settings, keyring),
        )
        shared = Shared(
            settings,
            storage,
            client,
            read_temporal,
            identity=identity,
            channels=channels,
            health=health,
            policies=_policies_of(settings),
            zookeeper=zookeeper,
        )
        probe = partial(storage.leases.leader, "resmgr", 0.0)
        report = reporting(storage.processes, list(dict.fromkeys(roles)), settings, keyring)
        async with probing(health, probe), report, renewing(client, read_temporal), asyncio.TaskGroup() as group:
            for role in dict.fromkeys(roles):
                group.create_task(ROLES[role](shared, stop), name=role)
            await asyncio.sleep(0)  # each begins with its imports
            _collect_garbage()
    finally:
        channels.close()
        storage.close()
        if zookeeper:
            zookeeper.close()


def _join_zookeeper(access: Access, session_s: float) -> ZooKeeper:
    from services.election.zookeeper import ZooKeeper

    return ZooKeeper(access, session_s)


def _policies_of(settings: Settings) -> Policies:
    return Policies(
        pod_placement_s=settings.pod_placement_timeout_s,
        gang_placement_s=settings.gang_placement_timeout_s,
        gang_launch_s=settings.gang_launch_timeout_s,
    )


def _raise_file_limit() -> None:
    """Raise the soft limit of file descriptors, often 1,024, which floods of connections would use up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(FILES_MAX, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _limit_arenas() -> None:
    """Limit the arenas of glibc's allocator, unless its own variable does."""
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune is not None and "MALLOC_ARENA_MAX" not in os.environ:
        tune(_M_ARENA_MAX, ARENAS_MAX)


def _collect_garbage() -> None:
    """Enable the garbage collector after the imports of the roles."""
    gc.freeze()  # to scan long-lived objects would take a quarter of each start, and most of each end
    gc.set_threshold(*GARBAGE)
    gc.enable()


async def _watch_expiry(transport: Transport) -> None:
    show_expiry(transport)
    while True:
        transport.warn_of_expiry()
        await asyncio.sleep(EXPIRY_CHECK_S)


async def _run_web(settings: Settings, stop: asyncio.Event, serves: Callable[[], None], transport: Transport) -> None:
    from services.web import server

    await server.run(settings, stop, serves, transport)


async def _run_bridge(
    settings: Settings, stop: asyncio.Event, serves: Callable[[], None], transport: Transport
) -> None:
    from services.aurorabridge import server

    await server.run(settings, stop, serves, transport)


CLIENTS = {WEB: _run_web, BRIDGE: _run_bridge}
"""The roles that need the API alone."""


def _client(role: str) -> Callable[[Shared, asyncio.Event], Coroutine[Any, Any, None]]:
    def run(shared: Shared, stop: asyncio.Event) -> Coroutine[Any, Any, None]:
        return CLIENTS[role](shared.settings, stop, partial(shared.health.note, role, ""), shared.channels.transport)

    return run


ROLES: dict[str, Callable[[Shared, asyncio.Event], Coroutine[Any, Any, None]]] = {
    "api": run_api,
    "worker": run_worker,
    "resmgr": run_resmgr,
    "hostmgr": run_hostmgr,
    WEB: _client(WEB),
    BRIDGE: _client(BRIDGE),
}
