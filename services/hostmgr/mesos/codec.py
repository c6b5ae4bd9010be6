"""Mesos's JSON to and from the model. "task" and "agent" are Mesos's names for a pod and its host."""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from google.protobuf.json_format import MessageToDict

from peloton.api import convert
from peloton.api.cluster_kinds import kubernetes_only
from peloton.api.pod_parts import check_times, http_port
from peloton.api.secret_values import OF_JOB
from peloton.api.v0.task import task_pb2
from peloton.model.host_pool import AT_PAR
from peloton.model.ids import PodId, parse_job_id
from peloton.model.making import maker
from peloton.model.pod import PodState, PodStatus
from peloton.model.resources import Resources
from peloton.model.secret import Secret
from services.hostmgr.driver import PodLaunch, PodOnHost, PodReport, PodTemplate, Token, UseSample
from services.hostmgr.mesos.executors import NAME, PREFIX, assign_task, is_of_aurora, split
from services.hostmgr.mesos.isolators import ALL, Isolators
from services.hostmgr.mesos.reasons import cause_of

Json = dict[str, Any]

log = logging.getLogger(__name__)

MIB = 2**20
JOBS_KEPT = 10_000
"""Limit of job ids that are known to be valid: each report of a pod has one."""
RECONCILED = "REASON_RECONCILIATION"
AGENT_BACK = "REASON_AGENT_REREGISTERED"
_SAY_NOTHING = ("TASK_UNREACHABLE", "TASK_UNKNOWN")
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
    # Mesos should send these only to partition-aware frameworks. Each is a terminal state all the same.
    "TASK_DROPPED": PodState.LOST,
    "TASK_GONE": PodState.LOST,
    "TASK_GONE_BY_OPERATOR": PodState.LOST,
}


def report_of(status: Json) -> PodReport:
    task_id, mesos_state = status["task_id"]["value"], status["state"]
    agent_id = status.get("agent_id", {}).get("value", "")
    uuid = status.get("uuid")
    return PodReport(
        task_id,
        _STATES[mesos_state].value if mesos_state in _STATES else mesos_state,
        partial(_pod_status, task_id, agent_id, status),
        (agent_id, task_id, uuid) if uuid else (),
        status.get("reason") == RECONCILED,
    )


def _pod_status(task_id: str, agent_id: str, status: Json) -> PodStatus | None:
    """Return None for a task that is not Peloton's, and for a state that does not determine the pod's
    (TASK_UNREACHABLE and TASK_UNKNOWN)."""
    state, pod_id = _STATES.get(status["state"]), _pod_id(task_id)
    if state is None or pod_id is None:
        if status["state"] not in _SAY_NOTHING:
            log.warning("ignored status %s of task %s: its id is not a Peloton pod id", status["state"], task_id)
        return None
    time_ns, host, containers, waits = int(status.get("timestamp", 0) * 1e9), "", (), False
    message, reason, healthy = status.get("message", ""), status.get("reason", ""), status.get("healthy")
    values = (pod_id, state, time_ns, host, agent_id, message, reason, healthy, cause_of(status), containers, waits)
    return _make_status(*values)


_make_status = maker(PodStatus)


class TaskTemplate:
    """The TaskInfo of one config of a job, built once; each pod adds its ids, ports and resources."""

    def __init__(self, template: PodTemplate, cluster: str, user: str = "") -> None:
        """``user`` runs the task unless the configuration names a user. (A framework's user can never be changed.)"""
        job, config = template.job, template.config
        self.refusal = ""
        """Why Mesos cannot run the pod, or "". Placement avoids Mesos hosts for such pods, except for configurations
        that release 0.1 has stored."""
        if asked := kubernetes_only(config):
            self.refusal = f"the pod asks for what Mesos does not have: {', '.join(asked)}"
        self._job_id = job.job_id
        self._dynamic_ports = template.dynamic_ports
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
            {"key": "peloton.resource_pool", "value": template.pool_path},
            {"key": "peloton.job_id", "value": job.job_id},
        ]
        grace_s = convert.kill_grace_s(config)
        self._rest: Json = {
            "name": job.job_id,
            "kill_policy": {"grace_period": {"nanoseconds": grace_s * 1_000_000_000}},
        }
        if config.HasField("container"):
            self._rest["container"] = _dict(config.container)
            _reveal_images(self._rest["container"], template.image_secrets)
        self._has_secrets = bool(template.secret_files)
        if template.secret_files:
            container = self._rest.setdefault("container", {"type": "MESOS"})
            container["volumes"] = [*container.get("volumes", ()), *map(_secret_volume, template.secret_files)]
        if config.HasField("executor"):
            self._rest["executor"] = _dict(config.executor)
            _reveal_images(self._rest["executor"], template.image_secrets)
            if given := self._rest["executor"].pop("command", {}):
                self._command = own_user | given
                self._command_env += self._command.pop("environment", {}).get("variables", [])
        self._command_env = [_reveal(variable, template.secret_variables) for variable in self._command_env]
        self._own_names = {variable["name"] for variable in self._command_env}
        self._aurora_task = config.executor.data if is_of_aurora(config) else None
        self._named_check = config.healthCheck if config.healthCheck.httpCheck.portName else None
        """A check that asks another port for each pod."""
        if config.HasField("healthCheck"):
            self._rest["health_check"] = _health_check(config.healthCheck, {})

    def refusal_of(self, isolators: Isolators, hostname: str) -> str:
        """Return why Mesos, or this agent, cannot run the task; else ""."""
        return self.refusal or (isolators.secrets_refusal(hostname) if self._has_secrets else "")

    def task_info(
        self, pod: PodLaunch, agent_id: str, resources: list[Json], isolators: Isolators = ALL, hostname: str = ""
    ) -> Json:
        instance_id = pod.pod_id.instance_id
        name = f"{self._job_id}-{instance_id}"
        environment = [
            *self._command_env,
            *({"name": name, "value": value} for name, value in pod.variables if name not in self._own_names),
            {"name": "PELOTON_JOB_ID", "value": self._job_id},
            {"name": "PELOTON_INSTANCE_ID", "value": str(instance_id)},
            {"name": "PELOTON_TASK_ID", "value": name},
        ]
        named_ports = [(n, e, number) for (n, e), number in zip(self._dynamic_ports, pod.ports, strict=True)]
        all_ports = {name: number for name, _, number in named_ports + self._static_ports}
        for _, env_name, number in named_ports + self._static_ports:
            if env_name:
                environment.append({"name": env_name, "value": str(number)})
        info = {
            **self._rest,
            "task_id": {"value": str(pod.pod_id)},
            "agent_id": {"value": agent_id},
            "resources": resources,
            "labels": {
                "labels": [
                    *self._labels,
                    {"key": "peloton.instance_id", "value": str(instance_id)},
                    {"key": "peloton.task_id", "value": name},
                ]
            },
        }
        if self._named_check is not None:
            info["health_check"] = _health_check(self._named_check, all_ports)
        if pod.factors != AT_PAR:
            # Docker limits its containers itself, whatever isolators the agent has.
            is_docker = info.get("container", {}).get("type") == "DOCKER"
            if limits := _limits(pod.template.resources, ALL if is_docker else isolators):
                info["limits"] = limits
        # Mesos accepts a task with a command or with an executor, which has its own command, and rejects both.
        command = {**self._command, "environment": {"variables": environment}}
        if "executor" in info:
            info["executor"] = {**info["executor"], "command": command}
        else:
            info["command"] = command
        if self._aurora_task is not None:
            self._assign(info, assign_task(self._aurora_task, pod.pod_id, agent_id, hostname, all_ports))
        if all_ports:
            info["discovery"] = {
                "visibility": "EXTERNAL",
                "name": self._job_id,
                "ports": {"ports": [{"name": n, "number": number} for n, number in all_ports.items()]},
            }
        return info

    def _assign(self, info: Json, task: bytes) -> None:
        """Give a task the executor of its own that runs a task of Aurora. Both have the data: Thermos reads the
        task's."""
        data = b64encode(task).decode()
        executor = {**info["executor"], "executor_id": {"value": f"{PREFIX}{info['task_id']['value']}"}}
        info["resources"], own = split(info["resources"], executor.pop("resources", ()))
        info["executor"] = executor | {"name": NAME, "data": data} | ({"resources": own} if own else {})
        info["data"] = data


def _dict(message: Any) -> Json:
    return MessageToDict(message, preserving_proto_field_name=True)


def _limits(asked: Resources, isolators: Isolators) -> Json:
    """Return limits for a task that takes less of its agent than it may use, as far as the agent enforces limits: an
    agent rejects limits without the matching isolator. Mesos before 1.10 ignores limits, and restricts the task to the
    resources that it takes; every version with quotas restricts disk in this way."""
    amounts = {
        "cpus": asked.cpu_milli / 1000 if isolators.limits_cpu else 0.0,
        "mem": float(asked.memory_mib) if isolators.limits_memory else 0.0,
    }
    return {kind: {"value": amount} for kind, amount in amounts.items() if amount}


def _reveal(variable: Json, secrets: Mapping[str, Secret]) -> Json:
    """Return a variable with its value, if that is a secret of the job."""
    if (secret := _find_secret(variable.get("secret", {}), secrets)) is None:
        return variable
    return {"name": variable["name"], "type": "SECRET", "secret": _value_of(secret)}


def _reveal_images(message: Any, secrets: Mapping[str, Secret]) -> None:
    """Replace references to secrets of the job by their values in all images inside a message."""
    if not secrets:
        return
    for inner in message.values() if isinstance(message, dict) else message:
        if isinstance(inner, (dict, list)):
            _reveal_images(inner, secrets)
    if isinstance(message, dict) and (secret := _find_secret(message.get("config"), secrets)) is not None:
        message["config"] = _value_of(secret)


def _find_secret(wire: Any, secrets: Mapping[str, Secret]) -> Secret | None:
    """Return the secret of the job to which a secret of Mesos refers, if it does."""
    reference = wire.get("reference", {}) if isinstance(wire, dict) else {}
    return secrets.get(reference.get("key", "")) if reference.get("name") == OF_JOB else None


def _secret_volume(secret: Secret) -> Json:
    source = {"type": "SECRET", "secret": _value_of(secret)}
    return {"mode": "RO", "container_path": secret.path, "source": source}


def _value_of(secret: Secret) -> Json:
    return {"type": "VALUE", "value": {"data": b64encode(secret.data).decode()}}


def _health_check(config: task_pb2.HealthCheckConfig, ports: Mapping[str, int]) -> Json:
    times = check_times(config)
    check: Json = {
        "delay_seconds": times.delay_s,
        "interval_seconds": times.interval_s,
        "timeout_seconds": times.timeout_s,
        "consecutive_failures": times.failures_max,
    }
    if config.type == task_pb2.HealthCheckConfig.HTTP:
        http = config.httpCheck
        scheme = http.scheme or "http"  # Mesos rejects an empty one
        check |= {"type": "HTTP", "http": {"scheme": scheme, "port": http_port(config, ports), "path": http.path}}
    else:
        check |= {"type": "COMMAND", "command": {"shell": True, "value": config.commandCheck.command}}
    return check


def acknowledge_call(token: Token) -> Json:
    """Return the acknowledgement of a report, by its token."""
    agent_id, task_id, uuid = token
    known = {"agent_id": {"value": agent_id}, "task_id": {"value": task_id}, "uuid": uuid}
    return {"type": "ACKNOWLEDGE", "acknowledge": known}


def reconcile_call(pods: Sequence[PodOnHost]) -> Json:
    """Return a request for the states of these pods, or without pods of all tasks of the framework that Mesos
    knows."""
    tasks = [{"task_id": {"value": str(pod.pod_id)}, "agent_id": {"value": pod.host_id}} for pod in pods]
    return {"type": "RECONCILE", "reconcile": {"tasks": tasks}}


def kill_call(pod_id: PodId, agent_id: str) -> Json:
    """Return a KILL; Mesos finds the agent when none is named."""
    agent: Json = {"agent_id": {"value": agent_id}} if agent_id else {}
    return {"type": "KILL", "kill": {"task_id": {"value": str(pod_id)}, **agent}}


def accept_call(offer_ids: Sequence[str], tasks: list[Json], before: Sequence[Json] = ()) -> Json:
    """Return an ACCEPT whose unused resources are offered again in the next allocation (refuse_seconds 0). Without
    tasks the offers are returned in the same way. ``before`` are operations that precede the launch."""
    offers = [{"value": offer_id} for offer_id in offer_ids]
    filters = {"refuse_seconds": 0}
    if not tasks:
        return decline_call(offer_ids, 0)
    launch = {"type": "LAUNCH", "launch": {"task_infos": tasks}}
    return {"type": "ACCEPT", "accept": {"offer_ids": offers, "operations": [*before, launch], "filters": filters}}


def decline_call(offer_ids: Sequence[str], refuse_s: float) -> Json:
    """Return a DECLINE: Mesos hides the declined resources for so long, unless more become free."""
    offers = [{"value": offer_id} for offer_id in offer_ids]
    return {"type": "DECLINE", "decline": {"offer_ids": offers, "filters": {"refuse_seconds": refuse_s}}}


def samples_of(rows: Sequence[Json], framework_id: str) -> list[UseSample]:
    """Return samples of the executors of all frameworks, except executors that the agent could not measure."""
    return [
        UseSample(
            f"{row['framework_id']}/{row['executor_id']}",
            _pod_id(row["executor_id"]) if row["framework_id"] == framework_id else None,
            numbers.get("cpus_user_time_secs", 0.0) + numbers.get("cpus_system_time_secs", 0.0),
            numbers["timestamp"],
            int(numbers.get("mem_rss_bytes", 0)) // MIB,
        )
        for row in rows
        if "timestamp" in (numbers := row.get("statistics") or {})
    ]


def _pod_id(text: str) -> PodId | None:
    """Return None for a task or executor that is not Peloton's."""
    try:
        pod_id = PodId.parse(text.removeprefix(PREFIX))
        _check_job_id(pod_id.job_id)
    except ValueError:
        return None
    return pod_id


_check_job_id = lru_cache(JOBS_KEPT)(parse_job_id)
