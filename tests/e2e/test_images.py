"""Images that take time to arrive on their hosts: prefetched ahead of an update in place, and still there for its
rollback.

The tests read the counters of the hosts and never measure time.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from google.protobuf.json_format import ParseDict

from cli.main import peloton
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.update import update_pb2
from peloton.api.v0.update.svc import update_svc_pb2
from tests.e2e.local import Cluster, shell, temporary
from tests.nightly import NIGHTLY

HOSTS = [{"name": f"h{n}", "cpus": 2, "mem": 1024, "disk": 1024} for n in range(4)]
DOWNLOAD_S = 0.5

pytestmark = pytest.mark.xdist_group("images")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("images")
    hosts = folder / "hosts.yaml"
    hosts.write_text(yaml.safe_dump(HOSTS))
    settings = temporary(Path(folder / "data"), hosts_file=hosts, image_download_s=DOWNLOAD_S)
    with Cluster(settings) as found:
        found.wait(lambda: found.capacity() == 8, "all hosts")
        yield found


class Images:
    """Images that the hosts have, and the counters of images since the start of a test."""

    def __init__(self, cluster: Cluster) -> None:
        self._url = f"http://{cluster.local.mesos}/minicluster/images"
        self._before = self._page()["counts"]

    def _page(self) -> dict[str, Any]:
        with urllib.request.urlopen(self._url, timeout=120) as answer:
            return dict(json.load(answer))

    @property
    def counts(self) -> dict[str, int]:
        """The counters that are not zero."""
        now = self._page()["counts"]
        return {name: count - self._before[name] for name, count in now.items() if count > self._before[name]}

    def hosts_with(self, image: str) -> set[str]:
        return {host for host, row in self._page()["hosts"].items() if image in row["present"]}


class Web:
    """A service with one instance on each host."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        label = {"key": "service", "value": name}
        rule = {"kind": "TASK", "condition": "CONDITION_LESS_THAN", "label": label, "requirement": 1}
        self._task: dict[str, Any] = {
            "labels": [label],
            "constraint": {"type": "LABEL_CONSTRAINT", "labelConstraint": rule},
        }
        config = self._config("1")
        self.id = cluster.submit(cluster.pool(name), name=name, type="SERVICE", instanceCount=4, defaultConfig=config)
        self.wait_running()
        self.pod_hosts = self.hosts()

    def image(self, version: str) -> str:
        return f"{self.name}:{version}"

    def _config(self, version: str, healthy_when: str = "") -> dict[str, Any]:
        docker = {"type": "DOCKER", "docker": {"image": self.image(version)}}
        check: dict[str, Any] = {
            "commandCheck": {"command": f"test -e {healthy_when}"},
            "type": "COMMAND",
            "intervalSecs": 1,
        }
        check |= {"enabled": True, "maxConsecutiveFailures": 1_000, "timeoutSecs": 10}
        health: dict[str, Any] = {"healthCheck": check} if healthy_when else {}
        return shell("sleep 1000", container=docker, **health, **self._task)

    def update(self, version: str, batch_size: int = 0, healthy_when: str = "") -> None:
        """Update the service in place."""
        job = self.cluster.client.jobs.Get(job_pb2.GetRequest(id=peloton_pb2.JobID(value=self.id))).jobInfo
        job.config.defaultConfig.Clear()
        ParseDict(self._config(version, healthy_when), job.config.defaultConfig)
        asked = update_pb2.UpdateConfig(batchSize=batch_size, inPlace=True)
        self.cluster.client.updates.CreateUpdate(
            update_svc_pb2.CreateUpdateRequest(
                jobId=peloton_pb2.JobID(value=self.id), jobConfig=job.config, updateConfig=asked
            )
        )

    def roll_back(self, *flags: str) -> None:
        arguments = ["-a", self.cluster.local.address, "job", "stateless", "rollback", self.id, "--in-place", *flags]
        result = CliRunner().invoke(peloton, arguments)
        assert result.exit_code == 0, result.output

    def hosts(self) -> dict[int, str]:
        return {i: task.runtime.host for i, task in self.cluster.tasks(self.id).items()}

    def wait_running(self, run: int = 1) -> None:
        """All instances run, for the so-manieth time, and no update is under way."""
        runs, states = dict.fromkeys(range(4), run), dict.fromkeys(range(4), "RUNNING")
        look = update_svc_pb2.ListUpdatesRequest(jobID=peloton_pb2.JobID(value=self.id))

        def is_done() -> bool:
            updates = self.cluster.client.updates.ListUpdates(look).updateInfo  # the first run is none
            is_over = all(update.status.state == update_pb2.SUCCEEDED for update in updates)
            return is_over and (self.cluster.run_ids(self.id), self.cluster.states(self.id)) == (runs, states)

        self.cluster.wait(is_done, f"run {run} of four instances")


def test_images_are_there_before_their_batch_begins(cluster: Cluster, tmp_path: Path) -> None:
    """The first batch waits for its image; meanwhile the hosts of the second fetch theirs, and it finds them."""
    images, healthy = Images(cluster), tmp_path / "healthy"
    web = Web(cluster, "ahead")
    assert {"misses": 4} == images.counts

    web.update("2", batch_size=2, healthy_when=str(healthy))
    cluster.wait(lambda: len(images.hosts_with("ahead:2")) == 4, "the image on all hosts")
    runs = cluster.run_ids(web.id)
    healthy.touch()  # nothing of the second batch begins before the first is healthy
    web.wait_running(run=2)

    assert {0: 2, 1: 2, 2: 1, 3: 1} == runs
    assert {"misses": 4 + 2, "prefetched": 2, "hits": 2} == images.counts
    assert web.pod_hosts == web.hosts()


@NIGHTLY
def test_an_emergency_rollback_begins_at_once(cluster: Cluster) -> None:
    """An emergency rollback in place and all at once downloads nothing: each host still has the image that it ran
    before."""
    images, web = Images(cluster), Web(cluster, "back")
    web.update("2")
    web.wait_running(run=2)
    assert {"misses": 4 + 4} == images.counts

    web.roll_back()
    web.wait_running(run=3)

    assert {"misses": 4 + 4, "hits": 4} == images.counts
    assert web.pod_hosts == web.hosts()
