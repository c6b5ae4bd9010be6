"""Services recover by themselves: a pod that fails its health check runs again after a backoff, and a pod whose host is
lost runs elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from peloton.api.v1alpha.pod import pod_pb2
from tests.e2e.local import Cluster
from tests.e2e.service import NEXT_RUN_S, SLEEP, Service
from tests.e2e.shared import FIVE_HOSTS, Lend
from tests.e2e.test_faults import control
from tests.ports import free_ports

pytestmark = pytest.mark.xdist_group("services")
CHECK = {"enabled": True, "initialIntervalSecs": 2, "intervalSecs": 1, "timeoutSecs": 10, "maxConsecutiveFailures": 5}
HEALTHY = pod_pb2.HEALTH_STATE_HEALTHY
THROTTLED = "Task throttled due to failure"
BACKOFF_S = 29  # of 30, because events are dated in whole seconds

# Answers 200 until a file is there, and then 500.
SERVER = """\
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(500 if os.path.exists(sys.argv[2]) else 200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def cluster(lend: Lend) -> Iterator[Cluster]:
    with lend(FIVE_HOSTS) as running:
        yield running


def health(service: Service) -> int:
    return int(service.pods()[0].containers_status[0].healthy.state)


def at_s(event: pod_pb2.PodEvent) -> float:
    return datetime.fromisoformat(event.timestamp).timestamp()


def test_what_is_sick_is_replaced(cluster: Cluster, tmp_path: Path) -> None:
    """A pod whose check by command or HTTP fails is ended, counts as failed, waits for the backoff of its first
    failure, and runs again."""
    (port,), sick, script = free_ports(1), tmp_path / "sick", tmp_path / "server.py"
    script.write_text(SERVER)
    pool = cluster.pool("sick")
    checks: dict[str, tuple[str, dict[str, Any]]] = {
        "command": (SLEEP, {"type": "HEALTH_CHECK_TYPE_COMMAND", "commandCheck": {"command": f"test ! -e {sick}"}}),
        "http": (
            f"exec python3 {script} {port} {sick}",
            {"type": "HEALTH_CHECK_TYPE_HTTP", "httpCheck": {"scheme": "http", "port": port, "path": "/health"}},
        ),
    }
    services = [
        Service(cluster, pool, 1, command, name=name, memoryMb=64, livenessCheck={**CHECK, **check}).create()
        for name, (command, check) in checks.items()
    ]
    for service in services:
        service.wait_update("SUCCEEDED")
        assert health(service) == HEALTHY

    sick.touch()
    for service in services:
        service.wait(lambda service=service: service.pods()[0].message == THROTTLED, "the wait")
    sick.unlink()

    for service in services:
        service.wait(lambda service=service: service.runs() == {0: 2}, "the next run", NEXT_RUN_S)
        service.wait(lambda service=service: health(service) == HEALTHY, "a healthy run")
        assert service.pods()[0].failure_count == 1
        (*_, began), ended = service.events(0, 2), service.events(0, 1)
        assert "HEALTH_STATE_UNHEALTHY" in [event.healthy for event in ended]
        assert (ended[0].actual_state, ended[0].message) == ("POD_STATE_KILLED", THROTTLED)
        assert (
            at_s(began) - min(at_s(event) for event in ended if event.actual_state == "POD_STATE_KILLED") >= BACKOFF_S
        )
        service.delete(force=True)


def test_who_loses_its_host_goes_elsewhere(cluster: Cluster) -> None:
    """Pods of a host that died run on another one, at once, and have not failed."""
    service = Service(cluster, cluster.pool("host-dies"), 3).create().wait_running()
    host = service.pods()[0].host
    lost = {instance for instance, pod in service.pods().items() if pod.host == host}

    control(cluster, "stop", host)

    service.wait(lambda: all(service.runs()[instance] == 2 for instance in lost), "second runs")
    service.wait_running()
    control(cluster, "start", host)
    assert all(service.pods()[instance].host != host for instance in lost)
    assert {pod.failure_count for pod in service.pods().values()} == {0}
    assert {run for instance, run in service.runs().items() if instance not in lost} <= {1}
    service.delete(force=True)
