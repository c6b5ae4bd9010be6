"""A host manager with its controller of external pods on a Kubernetes cluster, where a simple loop replaces workflows
and resource manager.
"""

from __future__ import annotations

import http.client
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.errors import Unavailable
from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobRecord
from peloton.model.pod import PodShape, PodState
from peloton.scheduling.placement import FirstFitPlacer
from services.hostmgr import external_adoption
from services.hostmgr.ahead_admission import AheadAdmission
from services.hostmgr.external_adoption import ExternalAdoption
from services.hostmgr.kubernetes.external.external_driver import ExternalPodsDriver
from services.hostmgr.kubernetes.settings import KubernetesSettings
from services.hostmgr.manager import HostManagerCore, HostManagerSettings
from services.storage import migrate
from services.storage.storage import Storage
from tests.kubernetes.client import MERGE, Client, Json, Login
from tests.kubernetes.control_plane import ControlPlane

T = TypeVar("T")

TIMEOUT_S = 180.0
CLUSTER = "k8s"
POOL = RespoolId("pool-of-dev")
_numbers = count(1)


def wait(condition: Callable[..., T | None], what: str) -> T:
    """Return the first true value of the condition."""
    until_s = time.monotonic() + TIMEOUT_S
    while not (value := condition()):
        assert time.monotonic() < until_s, f"still waiting for {what}"
        time.sleep(0.02)
    return value


def label_namespace(client: Client, namespace: str) -> None:
    """Give the namespace the label of the pool, and return when the policies hold its Jobs. An apiserver's view of a
    namespace is some moments old: a Job that is created before is not held, and its pods wait with gates.
    """
    label = {"metadata": {"labels": {"peloton.io/pool": "dev"}}}
    assert 200 == client.ask("PATCH", f"/api/v1/namespaces/{namespace}", label, MERGE).status
    container = {"name": "main", "image": "busybox"}
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs?dryRun=All"

    def is_held() -> bool:
        reply = client.ask("POST", path, {"metadata": {"name": "ahead"}, "spec": spec})
        assert reply.status == 201, reply.body
        return bool(reply.json()["spec"].get("suspend"))

    wait(is_held, f"the policies to hold Jobs of {namespace}")


class _Wakes:
    def jobs_changed(self, job_ids: Iterable[JobId], cause: str = "") -> None:
        """Ignore the signal: no workflow sleeps here."""

    pods_changed = jobs_changed


class ExternalWorld:
    def __init__(
        self,
        kubeconfig: Path,
        login: Login,
        folder: Path,
        *,
        namespace: str = "",
        node_selector: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Create the namespace of the pods, and the nodes: unless they are named, each world has its own."""
        self.url = f"sqlite:///{folder}/peloton.db"
        migrate.upgrade(self.url)
        self.storage = Storage(self.url)
        self.client = Client(login)
        number = next(_numbers)
        self.namespace, self.node = namespace or f"team-{number}", f"external-{number}"
        selector = node_selector or (("for", self.node),)
        self.settings = KubernetesSettings(
            str(kubeconfig),
            cluster=CLUSTER,
            namespace=f"peloton-{number}",
            node_selector=selector,
            slack_period_s=0,  # no kubelets: nothing is measured
        )
        pool = respool_pb2.ResourcePoolConfig(name="dev")
        pool.parent.value = "root"
        self.storage.pools.put(POOL, pool)
        made = self.client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        assert made.status in (201, 409), made.body
        self.said = "there is no room"
        self.trouble = ""
        self.ahead_max = 0
        self._seen: dict[JobId, str] = {}
        self.lead()

    def lead(self) -> None:
        """Start a new host manager."""
        records = self.storage.external_pods
        self.driver = ExternalPodsDriver(self.settings, records.uids_of, records.causes_of)
        self.core = HostManagerCore(HostManagerSettings(CLUSTER), self.storage, _Wakes(), self.driver)
        self.adoption = ExternalAdoption(
            CLUSTER,
            self.driver.external,
            lambda: self.driver.is_connected,
            self.storage.external_pods,
            self.storage.jobs,
            self.storage.pools,
            _Wakes(),
            self._why,
            ahead=AheadAdmission(
                CLUSTER,
                self.ahead_max,
                cluster=self.driver.external,
                pods=self.storage.pods,
                host_pods=self.storage.host_pods,
                lifecycles=_Wakes(),
                unsettled=self.core.host_returned,
            ),
        )
        self.core.start()
        self.adoption.start()

    def step_down(self) -> None:
        self.adoption.stop()
        self.core.stop()

    def end(self, name: str) -> None:
        """End the pod's containers with success."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/status"
        ended = {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}, "ready": False}
        container = {"name": "main", "image": "busybox", "imageID": "", "restartCount": 0, **ended}
        reply = self.client.ask(
            "PATCH", path, {"status": {"phase": "Succeeded", "containerStatuses": [container]}}, MERGE
        )
        assert reply.status == 200, reply.body

    def close(self) -> None:
        """Delete all objects: other tests see all pods and nodes of the cluster."""
        self.step_down()
        self.client.close()  # an apiserver leaves a connection that was silent for long; the next request opens one
        for path in (
            "apps/v1/namespaces/{}/deployments",
            "apps/v1/namespaces/{}/statefulsets",
            "batch/v1/namespaces/{}/jobs",
        ):
            self.client.ask("DELETE", f"/apis/{path.format(self.namespace)}?propagationPolicy=Background")
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        wait(
            lambda: self.client.ask("DELETE", f"{pods}?gracePeriodSeconds=0").status == 200 and not self.pods(),
            "an end",
        )
        self.client.ask("DELETE", f"/api/v1/nodes/{self.node}")
        self.storage.close()
        self.client.close()

    def _why(self, job_id: JobId) -> explain_pb2.JobWhyResponse:
        if not self.said:
            raise Unavailable("no resource manager")
        answer = explain_pb2.JobWhyResponse(poolPath="/dev")
        answer.reasons.add(text=self.said)
        return answer

    # The cluster.

    def create(self, path: str, body: Json) -> Json:
        reply = self.client.ask("POST", path, body)
        assert reply.status in (200, 201), reply.body
        return reply.json()

    def pod(self, name: str, command: str = "", cpu: str = "1", labels: Json | None = None, **more: Any) -> Json:
        """Create a pod. ``more``: further metadata."""
        meta = {"name": name, "namespace": self.namespace, "labels": {"peloton.io/pool": "dev", **(labels or {})}}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta | more, "spec": self.pod_spec(command, cpu)}
        return self.create(f"/api/v1/namespaces/{self.namespace}/pods", body)

    @staticmethod
    def pod_spec(command: str, cpu: str = "1") -> Json:
        container: Json = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
        if command:
            container["command"] = ["sh", "-c", command]
        return {"schedulerName": "peloton", "restartPolicy": "Never", "containers": [container]}

    def look(self, name: str) -> Json:
        return self.client.ask("GET", f"/api/v1/namespaces/{self.namespace}/pods/{name}").json()

    def pods(self) -> list[Json]:
        found: list[Json] = self.client.ask("GET", f"/api/v1/namespaces/{self.namespace}/pods").json()["items"]
        return found

    def events(self, name: str) -> set[str]:
        found = self.client.ask("GET", f"/api/v1/namespaces/{self.namespace}/events").json()["items"]
        return {event["reason"] for event in found if event["involvedObject"]["name"] == name}

    # In the place of workflows and resource manager.

    def jobs(self) -> list[JobRecord]:
        return [job for job_id in self.storage.jobs.active_ids() if (job := self.storage.jobs.get(job_id))]

    def turn(self) -> None:
        """Do the work of each job's workflow in a turn, and of the resource manager, which admits everything. Steps
        that fail because the host manager has no session or lists again are done in a later turn; they hold up no
        other job, as each has a workflow of its own.
        """
        self.trouble = ""
        for job in self.jobs():
            self._seen[job.job_id] = job.name
            try:
                self._step(job)
            except (Unavailable, OSError) as error:
                self.trouble = f"{job.name}: {error!r}"

    def _step(self, job: JobRecord) -> None:
        job_id = job.job_id
        progress = self.storage.jobs.settle(job_id, time.time_ns())
        if progress.kill_count:
            self.core.kill_running(job_id)
            self.storage.admission.kill_queued(job_id, time.time_ns())
        if progress.admit_count:
            queueable = self.storage.admission.queueable(job_id, 1_000)
            self.storage.admission.mark_pending(job_id, queueable, 1)
            now = self.storage.jobs.get(job_id)  # it may have grown since this turn began
            assert now is not None
            self.storage.admission.mark_ready([(job_id, 0, now.instance_count)])
        elif not progress.ready_count and not progress.gang_run:
            return
        gang = self.storage.pods.ready_gang(job_id)
        for for_gang, gangs in (
            (True, [gang] if gang else []),
            (False, self.storage.pods.ready_gangs(job_id, 1_000)),
        ):
            if not gangs:
                continue
            wanted: Counter[PodShape] = Counter()
            for one in gangs:
                wanted[one.shape] += len(one.pods)
            lease = self.core.acquire_hosts(job_id, list(wanted.items()), for_gang)
            batch = FirstFitPlacer().place(job_id, gangs, lease)
            if batch.placements:
                self.core.launch(job_id, batch.lease_id, batch.placements)
            else:
                self.trouble = (
                    f"{job.name}: {sum(wanted.values())} pods fit on none of {len(lease.hosts)} hosts: {lease}"
                )
                self.core.release(lease.lease_id)

    def until(self, condition: Callable[..., T | None], what: str) -> T:
        def take_turn() -> T | None:
            self.turn()
            return condition()

        try:
            return wait(take_turn, what)
        except AssertionError as error:
            jobs = {
                name: [(pod.run_id, pod.state, pod.message) for pod in self.storage.pods.page(job_id)]
                for job_id, name in self._seen.items()
            }
            self._print_state()
            raise AssertionError(f"{error}; last turn: {self.trouble or 'done'}; jobs: {jobs}") from error

    def _print_state(self) -> None:
        """Print what the host manager knows, what the cluster has, and where all threads are."""
        driver, held = self.driver, self.driver._owners
        print(f"connected: {driver.is_connected}; listed: {[one.is_listed for one in driver.external.sources]}")
        print(f"held owners: live: {held._is_live}; unlisted: {held._unlisted}")
        for entry in held._entries.values():
            print(f"{entry.owner.title} {entry.owner.phase}, stand-ins: {len(entry.stand_ins)}, places: {entry.places}")
        found = driver.external.list_pods() or ()
        print(f"found: {[(one.name, one.observed) for one in found]}")
        print(f"slots: {self.storage.external_pods.slots(CLUSTER)}")
        with suppress(OSError, http.client.HTTPException):  # the cause of the failure may be the apiserver
            for path in ("/apis/batch/v1/namespaces/{}/jobs", "/api/v1/namespaces/{}/pods"):
                for item in self.client.ask("GET", path.format(self.namespace)).json()["items"]:
                    print(item["metadata"]["name"], item["metadata"].get("annotations"), item["spec"], item["status"])
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            print(names.get(ident), "".join(traceback.format_stack(frame)[-4:]), sep="\n")

    def slots(self, job_id: JobId) -> dict[str, int]:
        """Return the instances of the job's pods by name; of a deleted pod by uid."""
        names = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in self.pods()}
        slots = self.storage.external_pods.slots(CLUSTER)
        return {names.get(slot.uid, slot.uid): slot.instance_id for slot in slots if slot.job_id == job_id}

    def states(self, job_id: JobId) -> list[PodState]:
        return [pod.state for pod in self.storage.pods.page(job_id)]


@contextmanager
def quick_world(
    plane: ControlPlane, folder: Path, monkeypatch: pytest.MonkeyPatch, labels: Mapping[str, str]
) -> Iterator[ExternalWorld]:
    """Run a world on the nodes with these labels, which soon explains why pods wait, and ends idle jobs."""
    monkeypatch.setattr(external_adoption, "EXPLAIN_S", 0.5)
    monkeypatch.setattr(external_adoption, "MOMENT_S", 0.2)
    monkeypatch.setattr(external_adoption, "IDLE_S", 0.5)
    with closing(ExternalWorld(plane.kubeconfig, plane.login, folder, node_selector=tuple(labels.items()))) as world:
        yield world
