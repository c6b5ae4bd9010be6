"""Roles call a Temporal server whose authority changes while they run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from services.tls.authority import LocalAuthority
from tests.conformance.workflow.test_renewal import Credentials
from tests.conformance.workflow.tls_proxy import behind_tls
from tests.e2e.local import Cluster, shell, temporary
from tests.nightly import NIGHTLY
from tests.temporal_server import temporal_server
from workflows.attributes import SEARCH_ATTRIBUTES

USED = "credentials of Temporal have changed and are in use"
CONNECTIONS = 5
"""Connections of api, resource manager, host manager, and two of the worker."""
pytestmark = NIGHTLY


@contextmanager
def serving(address: str, port: int, authority: LocalAuthority, clients: Path) -> Iterator[str]:
    """Serve a server that has no TLS by TLS, in a thread. ``clients``: the authorities of clients."""
    loop, ready, end = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    served: list[str] = []

    async def serve() -> None:
        server = authority.issue_server("temporal", ["127.0.0.1"])
        async with behind_tls(address, port, server, clients) as found:
            served.append(found)
            ready.set()
            await end.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(60)
    try:
        yield served[0]
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
        loop.close()


def test_jobs_run_after_the_authority_of_temporal_has_changed(tmp_path: Path) -> None:
    """Each role connects again by its new certificate, and none is restarted."""
    credentials = Credentials(tmp_path)
    environment = {
        "TEMPORAL_TLS_SERVER_CA_CERT_PATH": str(credentials.ca),
        "TEMPORAL_TLS_CLIENT_CERT_PATH": str(credentials.cert),
        "TEMPORAL_TLS_CLIENT_KEY_PATH": str(credentials.key),
    }
    with ExitStack() as later, ExitStack() as stack:
        server = later.enter_context(temporal_server((), [attribute.name for attribute in SEARCH_ATTRIBUTES]))
        with serving(server, 0, credentials.old, credentials.both) as address:
            cluster = Cluster(temporary(tmp_path / "data", temporal=address, environment=environment))
            stack.enter_context(cluster)
            pool = cluster.pool("renewed")
            first = cluster.finish(cluster.submit(pool, instanceCount=2, defaultConfig=shell("true")))
            credentials.use(credentials.new)
            cluster.wait(lambda: count_renewals(cluster) == CONNECTIONS, "use of the new credentials by all roles")
        port = int(address.rpartition(":")[2])
        later.enter_context(serving(server, port, credentials.new, credentials.new.ca_file))
        second = cluster.finish(cluster.submit(pool, instanceCount=2, defaultConfig=shell("true")))

    assert ["SUCCEEDED"] * 2 == [first, second]


def count_renewals(cluster: Cluster) -> int:
    return sum(USED in line for line in cluster.log)
