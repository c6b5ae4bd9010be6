"""v1alpha PodService: one instance of a job."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from peloton.api import convert_v1
from peloton.api.private import hostmgr_pb2
from peloton.api.respell import respell
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2 as svc
from peloton.errors import Aborted, InvalidArgument, NotFound, Reason, Unavailable
from peloton.lifecycle.goal import default_pod_goal
from peloton.model.ids import PodId, PodName
from peloton.model.job import JobRecord, JobState, JobType
from peloton.model.pod import PodEvent, PodRecord, PodState, TerminationReason
from peloton.model.update_text import sla_text
from services.api.containers import containers_of
from services.api.servicer import Servicer, by_caller, check_managed, write
from services.api.v1.ids import pod_name_of, prefix_error, run_of
from services.api.v1.pods import pod_infos, pod_specs

START_MESSAGE = "PodSVC.StartPod request"
STOP_MESSAGE = "PodSVC.StopPod request"
RESTART_MESSAGE = "PodSVC.RestartPod request"
NOT_PRESENT = "pod not present in cache, please retry action"
RUNS_MAX = 100
"""Maximum number of earlier runs in one answer."""


class PodService(Servicer):
    # -- writes

    @write
    async def StartPod(self, request: svc.StartPodRequest, context: Any) -> svc.StartPodResponse:
        name = pod_name_of(request.pod_name)
        job = await self._job_of(name)
        pod = await self._calls.run(self._records.pods.get, name.job_id, name.instance_id)
        check_managed(job)
        if job.type is JobType.BATCH and not job.is_active:
            raise InvalidArgument("cannot start pod in terminated job")
        if job.goal is JobState.DELETED or (pod is not None and pod.goal is PodState.DELETED):
            raise InvalidArgument("cannot start a pod going to be deleted")
        check_created(pod)
        async with self._quota.growing(job, job.instance_count, starts=True):
            await self._set_goal(name, default_pod_goal(job.type), START_MESSAGE)
        return svc.StartPodResponse()

    @write
    async def StopPod(self, request: svc.StopPodRequest, context: Any) -> svc.StopPodResponse:
        name = pod_name_of(request.pod_name)
        check_managed(await self._job_of(name))
        check_created(await self._calls.run(self._records.pods.get, name.job_id, name.instance_id))
        await self._set_goal(name, PodState.KILLED, STOP_MESSAGE)
        return svc.StopPodResponse()

    async def _set_goal(self, name: PodName, goal: PodState, message: str) -> None:
        one = [(name.instance_id, 1)]
        await self._calls.run(self._records.pods.set_goals, name.job_id, one, goal, time.time_ns(), by_caller(message))
        self._wake.wake(name.job_id)

    @write
    async def RestartPod(self, request: svc.RestartPodRequest, context: Any) -> svc.RestartPodResponse:
        try:
            name = pod_name_of(request.pod_name)
        except InvalidArgument:
            raise InvalidArgument("invalid pod name") from None
        job, check_sla = await self._job_of(name), request.check_sla
        check_managed(job)
        check_created(await self._calls.run(self._records.pods.get, name.job_id, name.instance_id))
        reason = TerminationReason.KILLED_FOR_SLA_AWARE_RESTART if check_sla else TerminationReason.KILLED_FOR_RESTART
        disrupt = partial(
            self._records.disruptions.disrupt,
            name.job_id,
            [name.instance_id],
            reason=reason,
            message=by_caller(RESTART_MESSAGE),
            checks_sla=check_sla,
            now_ns=time.time_ns(),
        )
        grant = await self._calls.run(disrupt)
        if grant.refusal:
            raise Aborted(f"pod restart would violate SLA: {sla_text(grant.refusal)}").because(Reason.SLA_VIOLATION)
        again = partial(
            self._records.pods.want_new_runs,
            name.job_id,
            [(name.instance_id, 1)],
            message=by_caller(RESTART_MESSAGE),
            termination=reason,
        )
        await self._calls.run(again)  # even if no host has the pod and nothing had to be taken down
        if job.is_active:
            self._wake.wake(name.job_id)
        return svc.RestartPodResponse()

    async def RefreshPod(self, request: svc.RefreshPodRequest, context: Any) -> svc.RefreshPodResponse:
        """Wake the job's workflow; there is no cache to refresh."""
        name = pod_name_of(request.pod_name)
        await self._calls.run(self._pod_or_not_found, name, f"pod {name} not found")
        self._wake.wake(name.job_id)
        return svc.RefreshPodResponse()

    @write
    async def DeletePodEvents(self, request: svc.DeletePodEventsRequest, context: Any) -> svc.DeletePodEventsResponse:
        name = pod_name_of(request.pod_name)
        run_id = run_of(request.pod_id, name)
        await self._calls.run(self._records.pods.delete_events, name.job_id, name.instance_id, run_id, run_id)
        return svc.DeletePodEventsResponse()

    # -- reads

    async def GetPod(self, request: svc.GetPodRequest, context: Any) -> svc.GetPodResponse:
        name = pod_name_of(request.pod_name)
        with prefix_error("failed to get task runtime"):
            pod = await self._calls.run(self._pod_or_not_found, name, f"pod {name} not found")
        (pod,) = await self._reasons.explain([pod])
        return await self._calls.run(self._get_pod, name, pod, request.status_only, request.limit)

    def _get_pod(self, name: PodName, pod: PodRecord, status_only: bool, limit: int) -> svc.GetPodResponse:
        """Return the pod with its earlier runs; ``limit`` counts the current run, too, and 0 means every known run."""
        runs = min(limit or RUNS_MAX, RUNS_MAX)
        newest: dict[int, PodEvent] = {}
        for event in self._records.pods.events(name.job_id, name.instance_id, None, runs) if runs > 1 else ():
            if event.run_id != pod.run_id:
                newest.setdefault(event.run_id, event)
        earlier = list(newest.values())[: runs - 1]
        response = svc.GetPodResponse()
        response.previous.extend(pod_pb2.PodInfo(status=convert_v1.past_status(event)) for event in earlier)
        if status_only:
            known = containers_of(self._records, [pod]).get((pod.instance_id, pod.run_id), ())
            response.current.status.CopyFrom(convert_v1.pod_status(pod, known))
            return response
        response.current.CopyFrom(pod_infos(self._records, [pod])[0])
        wanted = [(event.config_version, event.instance_id) for event in earlier]
        specs = pod_specs(self._records.configs, name.job_id, wanted)
        for info, key in zip(response.previous, wanted, strict=True):
            if key in specs:
                info.spec.CopyFrom(specs[key])
        return response

    async def GetPodEvents(self, request: svc.GetPodEventsRequest, context: Any) -> svc.GetPodEventsResponse:
        name = pod_name_of(request.pod_name)
        run_id = run_of(request.pod_id, name) if request.pod_id.value else None
        events = await self._calls.run(self._records.pods.events, name.job_id, name.instance_id, run_id, 1)
        return svc.GetPodEventsResponse(events=[convert_v1.pod_event(event) for event in events])

    async def GetPodCache(self, request: svc.GetPodCacheRequest, context: Any) -> svc.GetPodCacheResponse:
        name = pod_name_of(request.pod_name)
        if await self._calls.run(self._records.jobs.get, name.job_id) is None:
            raise NotFound("job not found in cache").because(Reason.JOB_NOT_FOUND)
        pod = await self._calls.run(self._pod_or_not_found, name, "task not found in cache")
        (pod,) = await self._reasons.explain([pod])
        info = (await self._calls.run(pod_infos, self._records, [pod]))[0]
        return svc.GetPodCacheResponse(status=info.status, labels=info.spec.labels)

    async def BrowsePodSandbox(
        self, request: svc.BrowsePodSandboxRequest, context: Any
    ) -> svc.BrowsePodSandboxResponse:
        name = pod_name_of(request.pod_name)
        check_managed(await self._job_of(name))
        run_id = run_of(request.pod_id, name) if request.pod_id.value else None
        events = await self._calls.run(self._records.pods.events, name.job_id, name.instance_id, run_id, 1)
        ran = next((event for event in events if event.state is PodState.RUNNING), None)
        if ran is None:
            raise Aborted("pod has not been run")
        run = PodId(name.job_id, name.instance_id, ran.run_id)
        sandbox = await self._hosts.browse_sandbox(run, ran.host, ran.agent_id)
        response = svc.BrowsePodSandboxResponse()
        respell(sandbox, response)
        return response

    async def GetPodFile(self, request: svc.GetPodFileRequest, context: Any) -> svc.GetPodFileResponse:
        run, host, agent_id = await self._place_of(request)
        piece = await self._hosts.read_file(run, host, agent_id, request.path, request.offset, request.follow)
        return svc.GetPodFileResponse(data=piece.data, is_end=piece.is_end)

    async def ExchangeWithCommand(
        self, request: svc.ExchangeWithCommandRequest, context: Any
    ) -> svc.ExchangeWithCommandResponse:
        run, host, agent_id = await self._place_of(request)
        if not request.number:
            check_managed(await self._job_of(pod_name_of(request.pod_name)))
        asked = hostmgr_pb2.ExchangeWithCommandRequest()
        respell(request, asked)
        asked.pod_id, asked.hostname, asked.agent_id = str(run), host, agent_id
        response = svc.ExchangeWithCommandResponse()
        answer = await self._hosts.exchange(asked)
        respell(answer, response)
        if answer.HasField("exit_code"):
            response.exit_code = answer.exit_code  # set even if it is zero
        return response

    async def _place_of(
        self, request: svc.GetPodFileRequest | svc.ExchangeWithCommandRequest
    ) -> tuple[PodId, str, str]:
        """Return the run, its host and its agent."""
        name = pod_name_of(request.pod_name)
        run_id = run_of(request.pod_id, name) if request.pod_id.value else None
        events = await self._calls.run(self._records.pods.events, name.job_id, name.instance_id, run_id, 1)
        ran = next((event for event in events if event.host and event.agent_id), None)
        if ran is None:
            raise Aborted("pod has not been run")
        return PodId(name.job_id, name.instance_id, ran.run_id), ran.host, ran.agent_id

    # -- storage

    async def _job_of(self, name: PodName) -> JobRecord:
        with prefix_error("fail to get job config"):
            job = await self._job_or_not_found(name.job_id, f"job:{name.job_id} not found")
        if name.instance_id >= job.instance_count:
            raise NotFound(f"pod {name} not found: the job has instances [0, {job.instance_count})").because(
                Reason.POD_NOT_FOUND, pod=name, instances=job.instance_count
            )
        return job

    def _pod_or_not_found(self, name: PodName, text: str) -> PodRecord:
        pod = self._records.pods.get(name.job_id, name.instance_id)
        if pod is None:
            raise NotFound(text)
        return pod


def check_created(pod: PodRecord | None) -> None:
    """Raise Unavailable for an instance of the job whose pod has not been created yet."""
    if pod is None:
        raise Unavailable(NOT_PRESENT)
