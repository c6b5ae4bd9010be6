"""Mesos's JSON to and from our words. "task" and "agent" are Mesos's names for a pod and its host."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict

from peloton.api.v0.task import task_pb2
from peloton.lifecycle.retry import REASON_HOST_REJECT_OFFER
from peloton.model.host import HostState, PlacedPod
from peloton.model.ids import JobId, PodId, parse_job_id
from peloton.model.job import JobRecord
from peloton.model.pod import Cause, PodState, PodStatus
from peloton.model.resources import Resources
from services.hostmgr.mesos.reasons import cause_of
from services.hostmgr.mesos.resources import OfferedResources
from services.hostmgr.room import RegisteredHost, labels_of

Json = dict[str, Any]

KILL_GRACE_DEFAULT_S = 30
_STATES = {
    "TASK_STAGING": PodState.LAUNCHED,
    "TASK_STARTING": PodState.STARTING,
    "TASK_RUNNING": PodState.RUNNING,
    "TASK_KILLING": PodState.RUNNING,
    "TASK_FINISHED": PodState.SUCCEEDED,
    "TASK_FAILED": PodState.FAILED,
    "TASK_ERROR": PodState.FAILED,
    "TASK_KILLED": PodState.KILLED,
    "TASK_LOST": PodState.LOST,
    # Only frameworks that are aware of partitions should be told these. Each is an end all the same.
    "TASK_DROPPED": PodState.LOST,
    "TASK_GONE": PodState.LOST,
    "TASK_GONE_BY_OPERATOR": PodState.LOST,
}


def pod_status(status: Json, host: str) -> PodStatus | None:
    """None for a task that is not ours, or a state that says nothing about the pod (TASK_UNREACHABLE and such)."""
    state = _STATES.get(status["state"])
    try:
        pod_id = PodId.parse(status["task_id"]["value"])
        parse_job_id(pod_id.job_id)
    except ValueError:
        return None
    if state is None:
        return None
    return PodStatus(
        pod_id,
        state,
        int(status.get("timestamp", 0) * 1e9),
        host,
        status.get("agent_id", {}).get("value", ""),
        status.get("message", ""),
        status.get("reason", ""),
        status.get("healthy"),
        cause_of(status),
    )


def launch_refused(pod_id: PodId, why: str, now_ns: int) -> PodStatus:
    """What we report ourselves of a pod that Mesos did not take, or that it was not told of."""
    reason = REASON_HOST_REJECT_OFFER
    return PodStatus(pod_id, PodState.LOST, now_ns, message=why, reason=reason, cause=Cause.OFFER)


def agent_of(entry: Json, cluster: str = "", roles: Collection[str] = ()) -> RegisteredHost | None:
    """An entry of a GET_AGENTS answer, with what frameworks of these roles may use; None of one that is away, and that
    nobody has withdrawn."""
    state, withdrawn = _withdrawn(entry)
    if not entry.get("active", True) and not withdrawn:
        return None
    info = entry["agent_info"]
    pot = OfferedResources(roles)
    pot.add(entry.get("total_resources") or info.get("resources", ()))
    allocated = OfferedResources(roles)
    allocated.add(entry.get("allocated_resources", ()))
    process, _, address = entry.get("pid", "").rpartition("@")
    hostname = info["hostname"]
    return RegisteredHost(
        info["id"]["value"],
        hostname,
        address,
        pot.total(revocable=False),
        pot.total(revocable=True),
        labels_of(hostname, info.get("attributes", ()), cluster),
        process,
        allocated.total(revocable=True),
        state,
        withdrawn,
        allocated.total(revocable=False),
    )


def _withdrawn(entry: Json) -> tuple[HostState, str]:
    """Drained or deactivated agents offer nothing until an operator reactivates them."""
    if not entry.get("deactivated"):
        return HostState.UP, ""
    match entry.get("drain_info", {}).get("state"):
        case "DRAINING":
            return HostState.DRAINING, "an operator of Mesos drains it"
        case "DRAINED":
            return HostState.DRAINED, "an operator of Mesos has drained it, and must reactivate it"
        case _:
            return HostState.UP, "an operator of Mesos has deactivated it, and must reactivate it"


class TaskTemplate:
    """The TaskInfo of one config of a job, made once; each pod adds its ids, ports and resources."""

    def __init__(
        self, job: JobRecord, pool_path: str, cluster: str, config: task_pb2.TaskConfig, user: str = ""
    ) -> None:
        """``user``: whom it runs as, unless the configuration says. That of a framework never changes in Mesos."""
        self.job_id: JobId = job.job_id
        self.resources = Resources.of(
            config.resource.cpuLimit,
            config.resource.memLimitMb,
            config.resource.diskLimitMb,
            config.resource.gpuLimit,
        )
        self.revocable = config.revocable or job.sla.revocable
        self.labels = tuple((label.key, label.value) for label in config.labels)
        self.port_names = [(p.name, p.envName) for p in config.ports if p.value == 0]
        self._static_ports = [(p.name, p.envName, p.value) for p in config.ports if p.value]
        self._command = _dict(config.command) if config.HasField("command") else {}
        self._command_env: list[Json] = self._command.pop("environment", {}).get("variables", [])
        own_user: Json = {"user": user} if user else {}
        self._command = own_user | self._command
        self._labels = [
            {"key": label.key, "value": label.value} for label in config.labels if not label.key.startswith("peloton.")
        ] + [
            {"key": "peloton.cluster", "value": cluster},
            {"key": "peloton.job_name", "value": job.name},
            {"key": "peloton.job_owner", "value": job.owning_team},
            {"key": "peloton.job_type", "value": job.type.value},
            {"key": "peloton.resource_pool", "value": pool_path},
            {"key": "peloton.job_id", "value": job.job_id},
        ]
        grace_s = config.killGracePeriodSeconds or KILL_GRACE_DEFAULT_S
        self._rest: Json = {
            "name": job.job_id,
            "kill_policy": {"grace_period": {"nanoseconds": grace_s * 1_000_000_000}},
        }
        if config.HasField("container"):
            self._rest["container"] = _dict(config.container)
        if config.HasField("executor"):
            self._rest["executor"] = _dict(config.executor)
            self._command = own_user | self._rest["executor"].pop("command", {})
            self._command_env += self._command.pop("environment", {}).get("variables", [])
        if config.HasField("healthCheck"):
            self._rest["health_check"] = _health_check(config.healthCheck)

    def ports(self, dealt: tuple[int, ...]) -> dict[str, int]:
        """Dynamic port names with the numbers dealt to the pod, in the order of the config."""
        return {name: number for (name, _), number in zip(self.port_names, dealt, strict=True)}

    def task_info(self, pod: PlacedPod, agent_id: str, resources: list[Json]) -> Json:
        pod_id = PodId(self.job_id, pod.instance_id, pod.run_id)
        name = f"{self.job_id}-{pod.instance_id}"
        environment = [
            *self._command_env,
            {"name": "PELOTON_JOB_ID", "value": self.job_id},
            {"name": "PELOTON_INSTANCE_ID", "value": str(pod.instance_id)},
            {"name": "PELOTON_TASK_ID", "value": name},
        ]
        named_ports = [(n, e, number) for (n, e), number in zip(self.port_names, pod.ports, strict=True)]
        for _, env_name, number in named_ports + self._static_ports:
            if env_name:
                environment.append({"name": env_name, "value": str(number)})
        info = {
            **self._rest,
            "task_id": {"value": str(pod_id)},
            "agent_id": {"value": agent_id},
            "resources": resources,
            "labels": {
                "labels": [
                    *self._labels,
                    {"key": "peloton.instance_id", "value": str(pod.instance_id)},
                    {"key": "peloton.task_id", "value": name},
                ]
            },
        }
        # Mesos takes a task with a command or with an executor, which has one of its own, and refuses both.
        command = {**self._command, "environment": {"variables": environment}}
        if "executor" in info:
            info["executor"] = {**info["executor"], "command": command}
        else:
            info["command"] = command
        all_ports = [(n, number) for n, _, number in named_ports + self._static_ports]
        if all_ports:
            info["discovery"] = {
                "visibility": "EXTERNAL",
                "name": self.job_id,
                "ports": {"ports": [{"name": n, "number": number} for n, number in all_ports]},
            }
        return info


def _dict(message: Any) -> Json:
    return MessageToDict(message, preserving_proto_field_name=True)


def _health_check(config: task_pb2.HealthCheckConfig) -> Json:
    check: Json = {
        "delay_seconds": config.initialIntervalSecs or 15,
        "interval_seconds": config.intervalSecs or 10,
        "timeout_seconds": config.timeoutSecs or 20,
        "consecutive_failures": config.maxConsecutiveFailures or 3,
    }
    if config.type == task_pb2.HealthCheckConfig.HTTP:
        http = config.httpCheck
        check |= {"type": "HTTP", "http": {"scheme": http.scheme, "port": http.port, "path": http.path}}
    else:
        check |= {"type": "COMMAND", "command": {"shell": True, "value": config.commandCheck.command}}
    return check


def acknowledge_call(status: Json) -> Json:
    """An ACKNOWLEDGE call."""
    known = {key: status[key] for key in ("agent_id", "task_id", "uuid")}
    return {"type": "ACKNOWLEDGE", "acknowledge": known}


def kill_call(pod_id: PodId, agent_id: str) -> Json:
    """Mesos finds the agent itself when none is named."""
    agent: Json = {"agent_id": {"value": agent_id}} if agent_id else {}
    return {"type": "KILL", "kill": {"task_id": {"value": str(pod_id)}, **agent}}


def accept_call(offer_ids: Sequence[str], tasks: list[Json]) -> Json:
    """What the launch leaves of the offers comes back with the next allocation (refuse_seconds 0). Without tasks
    the offers are given back the same way."""
    offers = [{"value": offer_id} for offer_id in offer_ids]
    filters = {"refuse_seconds": 0}
    if not tasks:
        return decline_call(offer_ids, 0)
    launch = {"type": "LAUNCH", "launch": {"task_infos": tasks}}
    return {"type": "ACCEPT", "accept": {"offer_ids": offers, "operations": [launch], "filters": filters}}


def decline_call(offer_ids: Sequence[str], refuse_s: float) -> Json:
    """Mesos hides for so long what was declined, until more than that is free."""
    offers = [{"value": offer_id} for offer_id in offer_ids]
    return {"type": "DECLINE", "decline": {"offer_ids": offers, "filters": {"refuse_seconds": refuse_s}}}
