"""Launches: committed first, then sent to the cluster, so that no pod starts twice and no pod is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from peloton.errors import NotFound, Reason, Unavailable
from peloton.lifecycle.retry import REASON_LAUNCH_REFUSED
from peloton.model.host import LaunchResult, Placement
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobRecord, JobType
from peloton.model.pod import Cause, PodState, PodStatus
from services.hostmgr.driver import Claim, ClusterDriver, HostLaunch, PodLaunch, PodTemplate
from services.hostmgr.gang_launches import GangLaunches
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.in_flight import InFlight
from services.hostmgr.metrics import LAUNCH_TIMES, count_launched
from services.hostmgr.pod_templates import TemplateCache
from services.hostmgr.reports import StatusWriter
from services.storage.jobs.jobs import Jobs
from services.storage.pods.host_pods import HostPods
from services.storage.volumes.volumes import Volumes


class Launcher:
    """Launches pods. Any thread may call."""

    def __init__(
        self,
        jobs: Jobs,
        pods: HostPods,
        volumes: Volumes,
        templates: TemplateCache,
        gangs: GangLaunches,
        cluster: str,
        cache: HostCache,
        driver: ClusterDriver,
        writer: StatusWriter,
        in_flight: InFlight[PodId],
        release: Callable[[str], None],
        unsettled: Callable[[], None],
        background_task: Callable[[], None],
    ) -> None:
        """``release`` releases a lease. ``unsettled`` is called when it is unknown whether pods arrived,
        ``background_task`` when the driver has periodic work due."""
        self._jobs, self._pods, self._volumes = jobs, pods, volumes
        self._cluster = cluster
        self._cache = cache
        self._driver = driver
        self._writer = writer
        self._in_flight = in_flight
        self._release = release
        self._unsettled = unsettled
        self._background_task = background_task
        self._templates, self._gangs = templates, gangs

    def launch(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult:
        """Commit, then send to the cluster. Pods that an earlier call committed are refused, so none starts twice;
        pods that the cluster rejects after the commit are stored as LOST and get a new run."""
        job = self._jobs.get(job_id)
        if job is None:
            raise NotFound(f"job {job_id} not found").because(Reason.JOB_NOT_FOUND, job=job_id)
        if (why := self._driver.unready) and job.type is not JobType.EXTERNAL:
            raise Unavailable(why)
        self._gangs.check(job, placements)
        templates = self._templates.of_job(job, [pod.instance_id for p in placements for pod in p.pods])
        placed = [(PodId(job_id, pod.instance_id, pod.run_id), p.hostname) for p in placements for pod in p.pods]
        asking = [
            (pod, host, templates[pod.instance_id].ordinary) for pod, host in placed if pod.instance_id in templates
        ]
        claims = self._cache.claim(lease_id, [p.hostname for p in placements], asking)
        self._release(lease_id)
        usable = [p for p in placements if p.hostname in claims]
        pods = [PodId(job_id, pod.instance_id, pod.run_id) for p in usable for pod in p.pods]
        try:
            with self._in_flight.launching(pods):
                taken, failed = self._launch(job, usable, claims, templates)
        except Exception as error:
            # It is unknown which pods were committed and which arrived.
            self._driver.return_resources(
                [resources_id for claim in claims.values() for resources_id in claim.resources_ids]
            )
            self._cache.host_pools.unknown(pods)
            self._unsettled()
            if isinstance(error, OSError):
                raise Unavailable(f"not known whether the cluster took the launch: {error}") from error
            raise
        total = sum(len(p.pods) for p in placements)
        result = LaunchResult(len(taken) - len(failed), total - len(taken), len(failed))
        count_launched(result)
        return result

    def _launch(
        self,
        job: JobRecord,
        placements: Sequence[Placement],
        claims: dict[Hostname, Claim],
        templates: dict[int, PodTemplate],
    ) -> tuple[set[int], list[PodId]]:
        """Return the instances that were committed, and the pods among them that the cluster rejected."""
        hosts = {hostname: claim.host_id for hostname, claim in claims.items()}
        rows = [
            (pod.instance_id, pod.run_id, p.hostname, hosts[p.hostname], templates[pod.instance_id].ports(pod.ports))
            for p in placements
            for pod in p.pods
            if pod.instance_id in templates  # else the instance has been deleted
        ]
        wanted = {instance: spec for instance, *_ in rows if (spec := templates[instance].volume)}
        taken = self._pods.mark_launched(job.job_id, rows, time.time_ns(), self._cluster, wanted) if rows else set()
        launched = [
            (i, run, host, templates[i].collect_labels(ports.values())) for i, run, host, _, ports in rows if i in taken
        ]
        self._cache.pods_launched(job.job_id, launched)
        LAUNCH_TIMES.begin(PodId(job.job_id, i, run) for i, run, *_ in launched)
        if len(taken) < len(rows):
            self._cache.host_pools.remove_refused([PodId(job.job_id, i, run) for i, run, *_ in rows if i not in taken])
        volumes = self._volumes.of_instances(job.job_id, sorted(taken & wanted.keys()))
        variables = self._gangs.variables(job, placements, templates, taken)
        launches = [
            HostLaunch(
                claims[placement.hostname],
                [
                    PodLaunch(
                        PodId(job.job_id, pod.instance_id, pod.run_id),
                        templates[pod.instance_id],
                        pod.ports,
                        volumes.get(pod.instance_id),
                        claims[placement.hostname].factors,
                        variables.get(pod.instance_id, ()),
                    )
                    for pod in placement.pods
                    if pod.instance_id in taken
                ],
            )
            for placement in placements
        ]
        return taken, self._send(launches)

    def _send(self, launches: Sequence[HostLaunch]) -> list[PodId]:
        """Send the launches; return the pods that the cluster rejected."""
        failed = self._driver.launch(launches)
        if failed:
            self._background_task()
            self._writer.commit([launch_refused(pod_id, message, time.time_ns()) for pod_id, message in failed])
        return [pod_id for pod_id, _ in failed]


def launch_refused(pod_id: PodId, why: str, now_ns: int) -> PodStatus:
    """Return Peloton's own report of a pod that the cluster rejected, or to which it was not sent."""
    return PodStatus(
        pod_id, PodState.LOST, now_ns, message=why, reason=REASON_LAUNCH_REFUSED, cause=Cause.RESOURCES_GONE
    )
