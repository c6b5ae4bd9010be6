"""Services from end to end, by the v1alpha API: creation, rollouts, restarts, stops, watches and maintenance."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from peloton.api.v0.host import host_pb2
from peloton.api.v0.maintenance import maintenance_pb2
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.watch import watch_pb2
from peloton.api.v1alpha.watch.svc import watch_svc_pb2
from tests.e2e.local import TIMEOUT_S, Cluster
from tests.e2e.service import NEXT_RUN_S, SLEEP, Service, hosts_of
from tests.e2e.shared import FIVE_HOSTS, Lend
from tests.nightly import NIGHTLY, nightly

pytestmark = pytest.mark.xdist_group("services")
NEWER, NEWEST, FAILS = "sleep 1001", "sleep 1002", "exit 1"
HEALTH = {"enabled": True, "type": "HEALTH_CHECK_TYPE_COMMAND", "initialIntervalSecs": 1, "intervalSecs": 1,
          "timeoutSecs": 5, "maxConsecutiveFailures": 3, "commandCheck": {"command": "true"}}  # fmt: skip
"""Health check, by which a rollout notices instances that fail soon after their start."""
Make = Callable[..., Service]


WEB = {"key": "service", "value": "web"}
THREE_PER_HOST = {
    "type": "CONSTRAINT_TYPE_LABEL",
    "labelConstraint": {
        "kind": "LABEL_CONSTRAINT_KIND_POD",
        "condition": "LABEL_CONSTRAINT_CONDITION_LESS_THAN",
        "label": WEB,
        "requirement": 3,
    },
}


@pytest.fixture(scope="module")
def cluster(lend: Lend) -> Iterator[Cluster]:
    """Yield a cluster that has resources for six instances, three on each host, even when two of its hosts are down."""
    with lend(FIVE_HOSTS) as running:
        yield running


@pytest.fixture
def make(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Make]:
    """Yield a function: ``make(6)`` creates a service and waits until its six instances run. Services are deleted at
    the end."""
    made = list[Service]()
    pool = cluster.pool(request.node.name.replace("[", "-").replace("]", ""))

    def new(count: int, command: str = SLEEP, **fields: object) -> Service:
        made.append(Service(cluster, pool, count, command, **fields).create())
        return made[-1].wait_running().wait_update("SUCCEEDED")

    yield new
    for service in made:
        if service.pods():
            _delete(service)
            service.wait(lambda service=service: not service.pods(), "the end of its pods")


def _delete(service: Service) -> None:
    """Delete a service, unless its test has deleted it already."""
    try:
        service.delete(force=True)
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.NOT_FOUND:
            raise


def test_creation_is_an_update(cluster: Cluster) -> None:
    """Instances are added in batches, and the service has version 1-1-1."""
    service = Service(cluster, cluster.pool("created"), 5).create(batch_size=2)
    service.wait_update("SUCCEEDED")

    service.wait(lambda: service.has_settled, "the job's own state and counts to follow")
    assert (service.version, service.versions()) == ("1-1-1", [1] * 5)
    assert service.update.num_instances_completed == 5
    service.delete(force=True)


def test_a_rollout_in_batches(make: Make) -> None:
    """Every instance has one new run with the new version, and at most a batch of them is unavailable at a time."""
    service = make(6)

    with service.observe() as seen:
        service.replace(NEWER, batch_size=2)
        service.wait_update("SUCCEEDED")

    assert (service.versions(), service.runs()) == ([2] * 6, dict.fromkeys(range(6), 2))
    assert seen.away_most == 2


def test_a_version_that_fails_is_rolled_back(make: Make) -> None:
    """One failed instance rolls back the update. The other instances are never restarted."""
    service = make(4, livenessCheck=HEALTH)

    with service.observe() as seen:
        service.replace(
            FAILS, batch_size=1, rollback_on_failure=True, max_instance_retries=1, max_tolerable_instance_failures=1
        )
        service.wait_update("ROLLED_BACK")

    service.wait_running()
    assert (service.config, service.versions(), seen.away_most) == (3, [3] * 4, 1)
    assert service.get().job_info.spec.default_spec.containers[0].entrypoint.value == SLEEP
    assert service.runs() == {0: 3, 1: 1, 2: 1, 3: 1}


@NIGHTLY
def test_a_version_that_fails_without_rollback(make: Make) -> None:
    """The update fails, and instances that it has not reached keep running."""
    service = make(3, livenessCheck=HEALTH)
    service.replace(FAILS, batch_size=1, max_instance_retries=1, max_tolerable_instance_failures=1)

    service.wait_update("FAILED")

    assert service.versions() == [2, 1, 1]
    assert list(service.states().values())[1:] == ["RUNNING"] * 2


def block_updates(service: Service, tmp_path: Path) -> Path:
    """Give the service a health check that fails until the returned file exists, so that no update gets past its first
    batch."""
    healthy = tmp_path / "healthy"
    service.liveness = {
        **HEALTH, "maxConsecutiveFailures": 1_000, "commandCheck": {"command": f"test -e {healthy}"}
    }  # fmt: skip
    return healthy


def test_pause_and_resume(make: Make, tmp_path: Path) -> None:
    """A paused update starts no further instances, and a resumed one completes."""
    service = make(3)
    healthy = block_updates(service, tmp_path)
    service.replace(NEWER, batch_size=1, start_paused=True)
    assert service.update_state == "PAUSED"

    service.resume()
    service.wait(lambda: 2 in service.versions(), "an instance of the new version")
    service.pause()
    healthy.touch()
    service.wait(lambda: not service.update.instances_current, "the end of what is in flight")
    assert (service.update_state, service.away()) == ("PAUSED", 0)
    assert (service.versions(), service.update.num_instances_remaining) == ([2, 1, 1], 2)
    service.resume()

    service.wait_update("SUCCEEDED")
    assert service.versions() == [2] * 3


@NIGHTLY
def test_abort(make: Make, tmp_path: Path) -> None:
    """Each instance keeps its version after an abort."""
    service = make(4)
    block_updates(service, tmp_path)
    service.replace(NEWER, batch_size=1)
    service.wait(lambda: 2 in service.versions(), "an instance of the new version")

    service.abort()

    service.wait_running()
    assert (service.update_state, service.versions()) == ("ABORTED", [2, 1, 1, 1])


@NIGHTLY
def test_a_newer_update_overwrites(make: Make, tmp_path: Path) -> None:
    """The older update is aborted, and all instances get the newest version."""
    service = make(4)
    healthy = block_updates(service, tmp_path)
    service.replace(NEWER, batch_size=1)
    service.wait(lambda: 2 in service.versions(), "an instance of the new version")

    service.replace(NEWEST, batch_size=2)
    healthy.touch()

    service.wait_update("SUCCEEDED")
    assert service.versions() == [3] * 4


def test_restart_of_a_range(make: Make) -> None:
    """Exactly the instances of the range have a new run, one at a time."""
    service = make(5)

    with service.observe() as seen:
        service.restart((1, 3), batch_size=1)
        service.wait_update("SUCCEEDED")

    assert service.runs() == {0: 1, 1: 2, 2: 2, 3: 1, 4: 1}
    assert seen.away_most == 1


def test_stop_start_delete(make: Make) -> None:
    """A stopped service has only killed pods, a started one runs all pods, and a deleted one has none."""
    service = make(3)

    service.stop()
    service.wait(lambda: set(service.states().values()) == {"KILLED"}, "all pods killed")
    service.wait(lambda: service.state == "KILLED", "the service killed")
    service.start()
    service.wait_running()
    service.stop()
    service.wait(lambda: service.state == "KILLED", "the service killed")
    service.delete()

    service.wait(lambda: not service.pods(), "no pods")
    service.wait(lambda: is_gone(service), "the end of the service")


def is_gone(service: Service) -> bool:
    try:
        service.get()
    except grpc.RpcError as error:
        return error.code() is grpc.StatusCode.NOT_FOUND
    return False


@NIGHTLY
def test_grow_and_shrink(make: Make) -> None:
    """Instances are added and removed, and the others are not restarted."""
    service = make(2)

    service.replace(count=5, batch_size=2)
    service.wait_update("SUCCEEDED")
    assert service.runs() == dict.fromkeys(range(5), 1)
    service.replace(count=3, batch_size=1)
    service.wait_update("SUCCEEDED")

    assert service.runs() == dict.fromkeys(range(3), 1)
    assert service.versions() == [3] * 3


def test_a_stopped_service_shrinks_and_is_deleted(make: Make) -> None:
    """A stopped service can be shrunk, and its deletion does not wait for an update."""
    service = make(5)

    service.replace(count=4, batch_size=1)
    service.stop()
    service.wait_update("SUCCEEDED")
    service.wait(lambda: service.state == "KILLED", "the service killed")
    service.replace(count=2, batch_size=1)
    service.wait_update("SUCCEEDED")
    assert service.states() == dict.fromkeys(range(2), "KILLED")
    service.replace(NEWER, start_paused=True)
    service.wait_update("PAUSED")
    service.delete(force=True)

    service.wait(lambda: is_gone(service), "the end of the service", quiet_s=20)


@NIGHTLY
def test_a_process_that_is_killed_comes_back(make: Make, tmp_path: Path) -> None:
    """A killed process counts as a failure and is followed by another run. The other instance is not restarted."""
    service = make(2, f'echo $$ > {tmp_path}/"$PELOTON_INSTANCE_ID"; exec sleep 1000')
    service.wait(lambda: bool((tmp_path / "0").exists() and (tmp_path / "0").read_text()), "the report of the process")

    os.kill(int((tmp_path / "0").read_text()), signal.SIGKILL)

    service.wait(lambda: service.runs() == {0: 2, 1: 1}, "the next run", NEXT_RUN_S)
    service.wait_running()
    assert {i: pod.failure_count for i, pod in service.pods().items()} == {0: 1, 1: 0}


def test_a_process_that_is_killed_during_a_rollout_comes_back_as_it_was(make: Make, tmp_path: Path) -> None:
    """An instance that fails before a paused update reaches it runs the old command again."""
    command = f'echo $$ {{}} >> {tmp_path}/"$PELOTON_INSTANCE_ID"; exec sleep 1000'
    service, reported = make(1, command.format("old")), tmp_path / "0"
    service.wait(lambda: reported.exists() and "old\n" in reported.read_text(), "the report of the process")
    service.replace(command.format("new"), start_paused=True)

    os.kill(int(reported.read_text().split()[0]), signal.SIGKILL)

    service.wait(lambda: service.runs() == {0: 2}, "the next run", NEXT_RUN_S)
    service.wait_running()
    service.wait(lambda: reported.read_text().count("\n") == 2, "the report of the next run")
    assert (reported.read_text().split()[3], service.versions()) == ("old", [1])
    assert {0: 1} == {i: pod.failure_count for i, pod in service.pods().items()}


def test_a_wrong_version_is_refused(make: Make) -> None:
    """A change based on another version is refused with that reason, and has no effect."""
    service = make(2)
    service.wait(lambda: service.has_settled, "the job's own state and counts to follow")
    before = service.get()

    for version in ("1-1-2", "2-1-1", "nonsense"):
        with pytest.raises(grpc.RpcError) as error:
            service.replace(NEWER, version=version)
        assert error.value.code() is grpc.StatusCode.ABORTED
        assert "unexpected entity version" in str(error.value.details())

    assert service.get() == before


def test_a_watch_sees_every_change(cluster: Cluster, make: Make) -> None:
    """Revisions increase, the last report on each instance is its state, and a watch that was cut off resumes by
    revision."""
    service = make(3)
    watcher = Watcher(cluster, service).start()

    service.replace(NEWER, batch_size=1)
    service.wait(watcher.has_seen_version(2), "a report on an instance of the new version")
    watcher.stop()
    service.wait_update("SUCCEEDED")
    resumed = Watcher(cluster, service, watcher.revisions[-1]).start()
    service.wait(lambda: resumed.versions() | {0: 2} == dict.fromkeys(range(3), 2), "reports on all instances")
    resumed.stop()

    both = [*watcher.revisions, *resumed.revisions]
    assert sorted(set(both)) == both
    last = {**watcher.last, **resumed.last}
    assert {i: pod.state for i, pod in last.items()} == {i: pod.state for i, pod in service.pods().items()}
    assert {i: pod.pod_id.value for i, pod in last.items()} == {i: p.pod_id.value for i, p in service.pods().items()}


class Watcher:
    """Thread that collects the answers of a watch of a service's pods."""

    def __init__(self, cluster: Cluster, service: Service, after: int = 0) -> None:
        wanted = watch_pb2.PodFilter(job_id=peloton_pb2.JobID(value=service.id))
        self.stream = cluster.client.watches.Watch(watch_svc_pb2.WatchRequest(start_revision=after, pod_filter=wanted))
        self.revisions, self.last = list[int](), dict[int, pod_pb2.PodStatus]()
        self.has_answered = threading.Event()
        self.end: grpc.StatusCode | None = None
        self.thread = threading.Thread(target=self._read, name="watcher")

    def _read(self) -> None:
        try:
            for answer in self.stream:
                self.has_answered.set()
                for pod in answer.pods:
                    self.last[int(pod.pod_name.value.rpartition("-")[2])] = pod.status
                    self.revisions.append(answer.revision)
        except grpc.RpcError as error:
            self.end = error.code()

    def start(self) -> Watcher:
        self.thread.start()
        assert self.has_answered.wait(TIMEOUT_S)
        return self

    def stop(self) -> None:
        self.stream.cancel()
        self.thread.join()
        assert self.end is grpc.StatusCode.CANCELLED

    def versions(self) -> dict[int, int]:
        return {i: int(pod.version.value.partition("-")[0]) for i, pod in self.last.items()}

    def has_seen_version(self, version: int) -> Callable[[], bool]:
        return lambda: version in self.versions().values()


@pytest.mark.parametrize(
    "victim", [nightly("worker"), nightly("api"), nightly("resmgr"), "hostmgr", nightly("temporal")]
)
def test_a_rollout_survives_the_death_of(victim: str, cluster: Cluster, make: Make) -> None:
    """Each instance runs the new version once despite a kill in the middle of the rollout, and at most a batch is
    unavailable. Only launches that are lost with the host manager need a further run."""
    service = make(8)

    with service.observe() as seen:
        service.replace(NEWER, batch_size=2)
        service.wait(lambda: service.versions().count(2) >= 3, "the middle of the rollout")
        cluster.kill(victim)
        service.wait_update("SUCCEEDED")

    runs = service.runs()
    assert (service.versions(), service.runs_that_ran()) == ([2] * 8, {i: [1, last] for i, last in runs.items()})
    assert set(runs.values()) <= ({2, 3} if victim == "hostmgr" else {2})
    assert seen.away_most == 2


def test_maintenance_keeps_to_the_sla(cluster: Cluster, make: Make) -> None:
    """Hosts go DOWN and their pods move, with at most one instance unavailable at a time, even when the call allows
    more hosts."""
    service = make(6, sla={"maximumUnavailableInstances": 1}, pod={"labels": [WEB], "constraint": THREE_PER_HOST})
    hosts, maintenance = hosts_of(service)[:2], cluster.client.maintenance
    assert len(hosts) == 2

    with service.observe() as seen:
        begun = maintenance.Start(maintenance_pb2.StartRequest(hostnames=hosts, at_most=2)).hosts
        assert [host_pb2.HOST_STATE_DRAINING] * 2 == [host.state for host in begun]
        down = dict.fromkeys(hosts, host_pb2.HOST_STATE_DOWN)
        service.wait(lambda: read_maintenance(cluster) == down, f"{hosts} DOWN")
        service.wait_running()

    assert (set(hosts) & set(hosts_of(service)), seen.away_most) == (set(), 1)
    maintenance.Complete(maintenance_pb2.CompleteRequest(hostnames=hosts))
    service.wait(lambda: not read_maintenance(cluster), "the end of the maintenance")


def read_maintenance(cluster: Cluster) -> dict[str, int]:
    hosts = cluster.client.maintenance.Query(maintenance_pb2.QueryRequest()).hosts
    return {host.hostname: host.state for host in hosts}
