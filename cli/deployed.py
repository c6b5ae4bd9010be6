"""The parts of a deployment as services of the outer Peloton: read, created, updated, deleted and awaited."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cli.errors import Failed, is_rpc_error
from cli.pools import ROOT_ID, pool_id_at
from cli.refusals import raise_if_refused
from cli.settings import Settings
from cli.wire import v0, v1
from peloton.deployment.parts import DISK_MIB, ORDER, Part
from peloton.deployment.plan import Observed
from peloton.model.update import UPDATE_TERMINAL, UpdateState

if TYPE_CHECKING:
    from peloton.client import Client

RETRIES_MAX = 1
"""Failed runs of one pod that an update forgives: the next one comes 30 s later."""
GRACE_S, CHECK_PERIOD_S, CHECK_TIMEOUT_S, CHECK_FAILURES_MAX = 15, 5, 10, 6
POLL_S = 1.0
OWNER = "peloton"
STATE_PREFIX = "WORKFLOW_STATE_"
PORT_NAME = "serves"


@dataclass(frozen=True)
class Deployed:
    """The services of the deployment with this name."""

    settings: Settings
    name: str
    pool: str

    @property
    def client(self) -> Client:
        return self.settings.client

    def job_id(self, part: str) -> str:
        """Return the id of the service of a part. It follows from names, so that a repeated deployment finds it."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"peloton-deployment/{self.name}/{part}"))

    def observe(self) -> dict[str, Observed]:
        """Return the parts that are there, by name."""
        found = {name: self.read(name) for name in ORDER}
        return {name: to_observed(job, name) for name, job in found.items() if job is not None}

    def read(self, part: str) -> v1.job_svc.GetJobResponse | None:
        request = v1.job_svc.GetJobRequest(job_id=v1.peloton.JobID(value=self.job_id(part)))
        try:
            return self.client.services.GetJob(request)
        except Exception as error:
            if is_rpc_error(error) and error.code().name == "NOT_FOUND":
                return None
            raise

    def create(self, part: Part) -> None:
        self.client.services.CreateJob(
            v1.job_svc.CreateJobRequest(
                job_id=v1.peloton.JobID(value=self.job_id(part.name)),
                spec=self.spec_of(part),
                create_spec=v1.job.CreateSpec(
                    batch_size=1, max_instance_retries=RETRIES_MAX, max_tolerable_instance_failures=1
                ),
            )
        )

    def update(self, part: Part) -> None:
        """Replace the spec, one pod at a time; an update that fails is rolled back by the outer Peloton."""
        job = self.read(part.name)
        if job is None:
            raise Failed(f"{part.name} of {self.name} was deleted meanwhile; deploy again")
        self.client.services.ReplaceJob(
            v1.job_svc.ReplaceJobRequest(
                job_id=job.job_info.job_id,
                version=job.job_info.status.version,
                spec=self.spec_of(part),
                update_spec=v1.job.UpdateSpec(
                    batch_size=1,
                    rollback_on_failure=True,
                    max_instance_retries=RETRIES_MAX,
                    max_tolerable_instance_failures=1,
                ),
            )
        )

    def delete(self, part: str) -> None:
        job = self.read(part)
        if job is not None:
            status = job.job_info.status
            request = v1.job_svc.DeleteJobRequest(job_id=job.job_info.job_id, version=status.version, force=True)
            self.client.services.DeleteJob(request)

    def wait(self, part: str, max_s: float, is_new: bool) -> None:
        """Wait until all pods of the part serve. Raises Failed after so long, and when an update ``is_new`` and has
        failed."""

        def is_done(job: v1.job_svc.GetJobResponse | None) -> bool:
            if is_new and job is not None and (state := update_state(job)) in FAILED:
                raise Failed(f"{part} of {self.name}: its update is {state}; {self.hint(part)}")
            return is_settled(job)

        self._wait(part, is_done, max_s)

    def wait_until_gone(self, part: str, max_s: float) -> None:
        self._wait(part, lambda job: job is None, max_s)

    def _wait(self, part: str, is_done: Callable[[v1.job_svc.GetJobResponse | None], bool], max_s: float) -> None:
        """Wait for a condition, also while the outer Peloton does not answer."""
        from peloton.client import is_away

        deadline_s = time.monotonic() + max_s
        while time.monotonic() < deadline_s:
            try:
                if is_done(self.read(part)):
                    return
            except Exception as error:
                if not is_rpc_error(error) or not is_away(error):
                    raise
            time.sleep(POLL_S)
        raise Failed(
            f"{part} of {self.name} is not done after {max_s:g} s: deploy again to continue; {self.hint(part)}"
        )

    def hint(self, part: str) -> str:
        return f"see `peloton job why {self.job_id(part)}`"

    def make_pool(self, parts: Iterable[Part]) -> bool:
        """Create the pool if it is missing, with a reservation for the parts. Return whether it was missing."""
        request = v0.respool.LookupRequest(path=v0.respool.ResourcePoolPath(value=self.pool))
        if self.client.respools.LookupResourcePoolID(request).id.value:
            return False
        if self.pool.count("/") > 1:
            raise Failed(f"no pool {self.pool}: create it; only pools below the root are created here")
        needs = {"cpu": 0.0, "memory": 0.0, "disk": 0.0}
        for part in parts:
            pod = {"cpu": part.cpu, "memory": part.memory_mib, "disk": DISK_MIB}
            needs = {kind: needs[kind] + part.instances * pod[kind] for kind in needs}
        root = self.client.respools.GetResourcePool(v0.respool.GetRequest()).poolinfo.config
        parent = v0.peloton.ResourcePoolID(value=ROOT_ID)
        config = v0.respool.ResourcePoolConfig(name=self.pool.strip("/"), parent=parent)
        for one in root.resources:
            config.resources.add(kind=one.kind, reservation=needs.get(one.kind, 0.0), limit=one.limit, share=1)
        response = self.client.respools.CreateResourcePool(v0.respool.CreateRequest(config=config))
        texts = {
            "alreadyExists": "pool {path} already exists: {message}",
            "invalidResourcePoolConfig": "pool {path} cannot be created: {message}",
        }
        raise_if_refused(self.settings, response, texts, path=self.pool)
        return True

    def places(self, part: str) -> list[str]:
        """Return HOST:PORT of each running pod of a part whose port the cluster gave out."""
        request = v1.job_svc.ListPodsRequest(job_id=v1.peloton.JobID(value=self.job_id(part)))
        return [
            f"{pod.status.host}:{port}"
            for answer in self.client.services.ListPods(request)
            for pod in answer.pods
            if pod.status.state == v1.pod.POD_STATE_RUNNING
            for container in pod.status.containers_status
            for port in container.ports.values()
        ]

    def spec_of(self, part: Part) -> v1.job.JobSpec:
        container = v1.pod.ContainerSpec(
            name=part.name,
            resource=v1.pod.ResourceSpec(cpu_limit=part.cpu, mem_limit_mb=part.memory_mib, disk_limit_mb=DISK_MIB),
            entrypoint=v1.pod.CommandSpec(value=part.command),
            environment=[v1.pod.Environment(name=name, value=value) for name, value in part.environment.items()],
            image=part.image,
            liveness_check=v1.pod.HealthCheckSpec(
                enabled=True,
                type=v1.pod.HealthCheckSpec.HEALTH_CHECK_TYPE_COMMAND,
                initial_interval_secs=CHECK_PERIOD_S,
                interval_secs=CHECK_PERIOD_S,
                timeout_secs=CHECK_TIMEOUT_S,
                max_consecutive_failures=CHECK_FAILURES_MAX,
                command_check=v1.pod.HealthCheckSpec.CommandCheck(command=part.check),
            ),
        )
        if part.port_variable:
            kind = v1.pod.PortSpec.PORT_TYPE_DYNAMIC_ENV_VAR
            container.ports.add(name=PORT_NAME, env_name=part.port_variable, type=kind)
        return v1.job.JobSpec(
            name=f"{self.name}-{part.name}",
            owning_team=OWNER,
            description=f"{part.name} of the Peloton {self.name}",
            labels=[v1.peloton.Label(key="deployment", value=self.name)],
            instance_count=part.instances,
            sla=v1.job.SlaSpec(maximum_unavailable_instances=1),
            default_spec=v1.pod.PodSpec(containers=[container], kill_grace_period_seconds=GRACE_S),
            placement=v1.job.Placement(spread=[v1.job.Spread(label="hostname", max_skew=1, soft=True)]),
            respool_id=v1.peloton.ResourcePoolID(value=pool_id_at(self.client, self.pool)),
        )


FAILED = (UpdateState.FAILED, UpdateState.ROLLED_BACK, UpdateState.ABORTED)


def to_observed(job: v1.job_svc.GetJobResponse, name: str) -> Observed:
    return Observed(part_of(job.job_info.spec, name), is_settled(job))


def part_of(spec: v1.job.JobSpec, name: str) -> Part:
    """Return the part that ``spec_of`` makes this spec of."""
    container = spec.default_spec.containers[0]
    return Part(
        name=name,
        instances=spec.instance_count,
        cpu=container.resource.cpu_limit,
        memory_mib=int(container.resource.mem_limit_mb),
        command=container.entrypoint.value,
        environment={one.name: one.value for one in container.environment},
        image=container.image,
        port_variable=container.ports[0].env_name if container.ports else "",
        check=container.liveness_check.command_check.command,
    )


def update_state(job: v1.job_svc.GetJobResponse) -> UpdateState | None:
    """Return the state of the latest update; None before the first one."""
    status = job.job_info.status.workflow_status
    name = v1.job.WorkflowState.Name(status.state).removeprefix(STATE_PREFIX)
    return UpdateState(name) if status.state else None


def is_settled(job: v1.job_svc.GetJobResponse | None) -> bool:
    """Return whether no update is under way and all pods run."""
    if job is None:
        return False
    state = update_state(job)
    stats: Mapping[str, int] = job.job_info.status.pod_stats
    running = stats.get("POD_STATE_RUNNING", 0)
    return (state is None or state in UPDATE_TERMINAL) and running == job.job_info.spec.instance_count
