"""An outage of the Mesos master: pods on hosts are not affected."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.local import shell
from tests.e2e.shared import THREE_HOSTS, Lend

pytestmark = pytest.mark.xdist_group("batch")


def test_pods_run_on_while_the_master_is_away(lend: Lend, tmp_path: Path) -> None:
    """Pods that end while the master is down have ended once it is back, waiting ones run on hosts, and none runs
    twice."""
    marks = tmp_path / "marks"
    marks.mkdir()

    def until(mark: str) -> dict[str, object]:
        here = f"{marks}/{mark}"
        return shell(
            f"echo $$ > {here}.pid.$PELOTON_INSTANCE_ID; while [ ! -e {here} ]; do sleep 0.1; done; "
            f"echo > {here}.done.$PELOTON_INSTANCE_ID"
        )

    def pids(mark: str) -> dict[str, str]:
        return {path.name: path.read_text().strip() for path in marks.glob(f"{mark}.pid.*")}

    with lend(THREE_HOSTS) as cluster, cluster.control() as local:
        pool = cluster.pool("drill")
        ends = cluster.submit(pool, instanceCount=4, defaultConfig=until("early"))
        stays = cluster.submit(pool, instanceCount=2, defaultConfig=until("late"))
        for job, count in ((ends, 4), (stays, 2)):
            cluster.wait(lambda j=job, n=count: cluster.counts(j) == {"RUNNING": n}, "pods that run")
        cluster.wait(lambda: len(pids("late")) == 2, "their processes")
        before = pids("late")

        assert ["master is stopped, its agents and their pods continue"] == local("stop", "master")
        assert any(line.split()[:2] == ["master", "stopped"] for line in local("status", ""))
        (marks / "early").touch()
        cluster.wait(lambda: len(list(marks.glob("early.done.*"))) == 4, "the end of four pods")
        waits = cluster.submit(pool, instanceCount=1, defaultConfig=shell("true"))
        assert {"RUNNING": 4} == cluster.counts(ends)
        assert all(Path(f"/proc/{pid}").exists() for pid in before.values())

        assert ["master is running"] == local("start", "master")

        assert ["SUCCEEDED", "SUCCEEDED"] == [cluster.finish(job) for job in (ends, waits)]
        assert ({"RUNNING": 2}, before) == (cluster.counts(stays), pids("late"))
        (marks / "late").touch()
        assert "SUCCEEDED" == cluster.finish(stays)
        assert [{1}, {1}, {1}] == [set(cluster.run_ids(job).values()) for job in (ends, stays, waits)]
