"""Clients that submit far faster than the cluster can take are refused with a retry time, and no role fails."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.model.ids import JobId
from peloton.model.job import JobState
from services.storage.jobs.search import Backlog
from services.storage.storage import Storage
from tests.bench.figures import status_kib
from tests.e2e.crowd import POLL_S, Crowd
from tests.e2e.local import Cluster, temporary
from tests.nightly import NIGHTLY

SUBMIT_S = 120.0
JOBS_WAITING_MAX, JOBS_ACTIVE_MAX = 40, 60
RSS_MAX_MIB = {"api": 300, "worker": 400, "resmgr": 300, "hostmgr": 300}
"""Several times what they hold at rest; what grows with what was refused would pass it."""
PAGE = 500

pytestmark = [NIGHTLY, pytest.mark.xdist_group("pressure")]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    environment = {
        "PELOTON_JOBS_WAITING_MAX": str(JOBS_WAITING_MAX),
        "PELOTON_JOBS_ACTIVE_MAX": str(JOBS_ACTIVE_MAX),
    }
    with Cluster(temporary(tmp_path, simulate=50, environment=environment)) as running:
        yield running


def rss_mib(cluster: Cluster) -> dict[str, int]:
    found = {}
    for name in RSS_MAX_MIB:
        process = cluster.local.part(name).process
        assert process is not None
        found[name] = status_kib("VmRSS", process.pid) // 1024
    return found


def watch(cluster: Cluster, storage: Storage, crowd: Crowd) -> tuple[list[Backlog], dict[str, int]]:
    """The backlog at each read, and the most memory of each role, for as long as clients submit."""
    seen: list[Backlog] = []
    most = dict.fromkeys(RSS_MAX_MIB, 0)
    until_s = time.monotonic() + SUBMIT_S
    while time.monotonic() < until_s:
        seen.append(storage.search.backlog())
        most = {name: max(most[name], now) for name, now in rss_mib(cluster).items()}
        crowd.ended.wait(POLL_S)
    return seen, most


def read_states(storage: Storage) -> dict[str, JobState]:
    found: dict[str, JobState] = {}
    last = ""
    while page := storage.search.jobs_after(last, PAGE):
        found |= {job.job_id: job.state for job in page}
        last = page[-1].job_id
    return found


def test_clients_that_press_are_delayed(cluster: Cluster) -> None:
    """Every acknowledged job exists and succeeds, refused ones left nothing, and bounds and memory hold throughout."""
    storage = Storage(cluster.local.database)
    pids = {name: cluster.local.part(name).process for name in RSS_MAX_MIB}
    with Crowd(cluster.local.address, cluster.pool("press")) as crowd:
        seen, most_mib = watch(cluster, storage, crowd)
    cluster.wait(lambda: storage.search.backlog() == Backlog(), "the end of all jobs", quiet_s=300)
    stored = read_states(storage)
    storage.close()
    print(
        f"{len(crowd.acknowledged)} taken, {len(crowd.waits_s)} refused ({dict(crowd.texts)}), waits up to "
        f"{max(crowd.waits_s):.1f} s, {len(crowd.reads_s)} reads, MiB {most_mib}, waiting at most "
        f"{max(look.jobs_waiting for look in seen)}, active at most {max(look.jobs_active for look in seen)}"
    )

    assert [] == crowd.unexpected
    assert dict.fromkeys(crowd.acknowledged, JobState.SUCCEEDED) == stored
    assert len(crowd.refused) > 0
    assert not crowd.refused & stored.keys()
    assert min(crowd.waits_s) >= 1.0
    assert crowd.reads_s
    assert JOBS_WAITING_MAX >= max(look.jobs_waiting for look in seen)
    assert JOBS_ACTIVE_MAX >= max(look.jobs_active for look in seen)
    assert {} == {name: mib for name, mib in most_mib.items() if mib > RSS_MAX_MIB[name]}
    assert pids == {name: cluster.local.part(name).process for name in RSS_MAX_MIB}
    assert "SUCCEEDED" == cluster.job_state(JobId(crowd.acknowledged[0]))
