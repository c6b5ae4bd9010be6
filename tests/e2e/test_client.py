"""The Python client: the recipes of docs/client.md, and an API that is killed while programs wait and watch."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.api.v1alpha.job.stateless.stateless_pb2 import JobSpec, UpdateSpec
from peloton.api.v1alpha.pod import pod_pb2
from peloton.client import AsyncClient, Client
from tests.e2e.local import Cluster, shell
from tests.e2e.shared import THREE_HOSTS, Lend

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
RECIPE = re.compile(r"^## (\d+)\. .*?^```python\n(.*?)^```\n\n```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
TIMEOUT_S = 180.0
pytestmark = pytest.mark.xdist_group("batch")


def test_the_recipes_do_what_they_say(lend: Lend) -> None:
    """Each block of the page runs after the ones before it, and prints the text below it."""
    recipes = RECIPE.findall(PAGE)
    names: dict[str, Any] = {}
    with lend(THREE_HOSTS) as cluster:
        cluster.pool("team")
        for number, code, expected in recipes:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                program = code.replace("localhost:5397", cluster.local.address)
                exec(compile(program, f"recipe {number}", "exec"), names)
            assert expected == printed.getvalue(), number

    assert [str(number) for number in range(1, 11)] == [number for number, _, _ in recipes]


def service(name: str, instance_count: int) -> JobSpec:
    spec = JobSpec(name=name, instance_count=instance_count)
    spec.sla.preemptible = True
    container = spec.default_spec.containers.add(name="main")
    container.resource.cpu_limit, container.resource.mem_limit_mb = 0.1, 16
    container.entrypoint.value = "exec sleep 100000"
    return spec


class Followed(threading.Thread):
    """A program that watches the pods of a service, and knows each of them by its changes alone."""

    def __init__(self, address: str, job_id: str) -> None:
        super().__init__(daemon=True)
        self.client, self.job_id = Client(address), job_id
        self.pods: dict[str, pod_pb2.PodSummary] = {}
        self.revisions: list[int] = []
        self.begun = threading.Event()
        self.lists = 0

    def run(self) -> None:
        with contextlib.suppress(grpc.RpcError, ValueError):  # of the closed client
            for changes in self.client.watch_pods(self.job_id):
                self.lists += changes.is_all
                self.revisions += [changes.revision] if changes.changed or changes.gone else []
                self.pods |= {pod.pod_name.value: pod for pod in changes.changed}
                self.begun.set()

    @property
    def running(self) -> list[str]:
        states = {name: pod.status.state for name, pod in dict(self.pods).items()}
        return sorted(name for name, state in states.items() if state == pod_pb2.POD_STATE_RUNNING)


async def wait_for_both(cluster: Cluster, job_id: str) -> tuple[str, str]:
    """Wait for a job by both clients while the API is killed and started again, and then lets the job end."""
    async with AsyncClient(cluster.local.address) as client:
        waits = [
            asyncio.create_task(client.wait(job_id, TIMEOUT_S)),
            asyncio.create_task(asyncio.to_thread(wait_by_thread, cluster.local.address, job_id)),
        ]
        await asyncio.to_thread(cluster.kill, "api")
        await asyncio.sleep(0)
        assert not any(wait.done() for wait in waits)
        first, second = await asyncio.gather(*waits)
    return first.state, second.state


def wait_by_thread(address: str, job_id: str) -> Any:
    with Client(address) as client:
        return client.wait(job_id, TIMEOUT_S)


def test_a_killed_api_is_waited_for(lend: Lend, tmp_path: Path) -> None:
    """Waits end with the job, and a watch sees each pod reach its last state, without a second list."""
    with lend(THREE_HOSTS) as cluster, Client(cluster.local.address) as client:
        pool_id = cluster.pool("kept")
        job_id = cluster.submit(
            pool_id, instanceCount=1, defaultConfig=shell(f"until [ -e {tmp_path}/end ]; do sleep 0.1; done")
        )
        web_id = client.submit("/kept", service("web", 2))
        followed = Followed(cluster.local.address, web_id)
        followed.start()
        assert followed.begun.wait(TIMEOUT_S)
        cluster.wait(lambda: len(followed.running) == 2, "two pods in the watch")

        cluster.kill("api")
        key = client.scale(web_id, 4, UpdateSpec(batch_size=1))
        assert 2 == client.wait_for_update(web_id, key, TIMEOUT_S).num_instances_completed
        cluster.wait(lambda: len(followed.running) == 4, "four pods in the watch")
        ending = threading.Timer(3.0, (tmp_path / "end").touch)
        ending.start()
        states = asyncio.run(wait_for_both(cluster, job_id))
        ending.join()

        assert ("SUCCEEDED", "SUCCEEDED") == states
        assert followed.revisions == sorted(set(followed.revisions))
        assert 1 == followed.lists
        client.stop(web_id)
        cluster.wait(lambda: not followed.running, "the end of all pods in the watch")
        followed.client.close()
        followed.join(TIMEOUT_S)
