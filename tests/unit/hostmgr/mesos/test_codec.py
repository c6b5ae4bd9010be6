"""Pods as Mesos tasks, and Mesos statuses of pods."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import orjson
import pytest
from google.protobuf.json_format import ParseDict
from thriftpy2.protocol.cybin import TCyBinaryProtocol
from thriftpy2.transport.memory import TCyMemoryBuffer

from peloton.api.convert import new_job_record
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.host_pool import Factors
from peloton.model.ids import JobId, PodId
from peloton.model.pod import PodState, PodStatus
from peloton.model.resources import Resources
from peloton.model.secret import Secret
from services.aurorabridge.splice import encode
from services.aurorabridge.thrift import api
from services.hostmgr.driver import PodLaunch, PodTemplate
from services.hostmgr.mesos.agents import AgentReader
from services.hostmgr.mesos.codec import TaskTemplate, acknowledge_call, report_of
from services.hostmgr.mesos.isolators import Isolators

JOB = JobId("00000000-0000-4000-8000-000000000001")
NAME = f"{JOB}-3"
RESOURCES = [{"name": "cpus", "type": "SCALAR", "scalar": {"value": 1.0}}]


def launch(instance_id: int, run_id: int, ports: tuple[int, ...] = ()) -> PodLaunch:
    return PodLaunch(PodId(JOB, instance_id, run_id), template({}), ports)


def template(task: dict[str, Any], **sla: Any) -> PodTemplate:
    config = ParseDict(task, task_pb2.TaskConfig())
    job = job_pb2.JobConfig(name="train", owningTeam="maps", type=job_pb2.BATCH, instanceCount=4)
    job.sla.revocable = sla.get("revocable", False)
    return PodTemplate(new_job_record(JOB, job, 1), "/eng/ml", config)


def info(task: dict[str, Any], ports: tuple[int, ...] = ()) -> dict[str, Any]:
    return TaskTemplate(template(task), "west").task_info(launch(3, 2, ports), "agent-1", RESOURCES)


def pairs(entries: list[dict[str, str]], key: str) -> dict[str, str]:
    return {entry[key]: entry["value"] for entry in entries}


def environment(task: dict[str, Any], ports: tuple[int, ...] = ()) -> dict[str, str]:
    return pairs(info(task, ports)["command"]["environment"]["variables"], "name")


def labels(task: dict[str, Any]) -> dict[str, str]:
    return pairs(info(task)["labels"]["labels"], "key")


@pytest.mark.parametrize(
    ("task", "refusal"),
    [
        ({}, ""),
        ({"otherContainers": [{"name": "proxy"}]}, "the pod asks for what Mesos does not have: several containers"),
        ({"initContainers": [{"name": "setup"}]}, "the pod asks for what Mesos does not have: init containers"),
    ],
)
def test_what_mesos_cannot_run_is_refused(task: dict[str, Any], refusal: str) -> None:
    """A pod that Mesos cannot run is rejected, for example one with several containers."""
    assert refusal == TaskTemplate(template(task), "west").refusal


def test_a_task_is_named_after_its_run() -> None:
    """The task id is the pod id; agent and resources come from the placement."""
    made = info({"command": {"value": "true"}})

    assert {"value": f"{JOB}-3-2"} == made["task_id"]
    assert ({"value": "agent-1"}, RESOURCES, JOB) == (made["agent_id"], made["resources"], made["name"])
    assert "true" == made["command"]["value"]
    assert {"container", "executor", "health_check", "discovery"}.isdisjoint(made)


def test_a_task_names_its_user() -> None:
    """The user is Peloton's, unless the configuration names another."""
    config = ParseDict({"command": {"value": "run"}}, task_pb2.TaskConfig())
    job = new_job_record(JOB, job_pb2.JobConfig(name="train"), 1)
    plain = TaskTemplate(PodTemplate(job, "", config), "", "maps").task_info(launch(3, 2), "a", [])
    config.command.user = "ads"
    named = TaskTemplate(PodTemplate(job, "", config), "", "maps").task_info(launch(3, 2), "a", [])

    assert ["maps", "ads"] == [task["command"]["user"] for task in (plain, named)]
    assert "user" not in info({})["command"]


def test_a_task_with_an_executor_has_no_command() -> None:
    """Mesos rejects a task with both. The environment, and the user unless it names another, belong to the executor's
    command.
    """
    executor = {
        "executorId": {"value": "e"},
        "command": {"value": "run", "environment": {"variables": [{"name": "MODE", "value": "x"}]}},
    }
    task = {
        "command": {"value": "no", "environment": {"variables": [{"name": "A", "value": "1"}]}},
        "executor": executor,
    }
    config = ParseDict(task, task_pb2.TaskConfig())
    job = new_job_record(JOB, job_pb2.JobConfig(name="train"), 1)
    plain = TaskTemplate(PodTemplate(job, "", config), "", "maps").task_info(launch(3, 2), "a", [])
    config.executor.command.user = "ads"
    named = TaskTemplate(PodTemplate(job, "", config), "", "maps").task_info(launch(3, 2), "a", [])

    assert "command" not in plain
    assert [("run", "maps"), ("run", "ads")] == [
        (made["executor"]["command"]["value"], made["executor"]["command"]["user"]) for made in (plain, named)
    ]
    variables = pairs(plain["executor"]["command"]["environment"]["variables"], "name")
    assert {"A": "1", "MODE": "x", **IDS} == variables


AURORA: dict[str, Any] = {
    "command": {"value": "./thermos", "environment": {"variables": [{"name": "A", "value": "1"}]}},
    "ports": [{"name": "http"}, {"name": "admin", "value": 8080}],
    "executor": {
        "type": "CUSTOM",
        "executorId": {"value": "PLACEHOLDER"},
        "data": b64encode(encode(api.TaskConfig(tier="preferred"))).decode(),
        "resources": [
            {"name": "cpus", "type": "SCALAR", "scalar": {"value": 0.25}},
            {"name": "mem", "type": "SCALAR", "scalar": {"value": 128}},
        ],
    },
}


def test_an_executor_of_aurora_gets_its_task() -> None:
    """Each pod has an executor of its own, whose command is the pod's; both have the AssignedTask."""
    held = [*RESOURCES, {"name": "mem", "type": "SCALAR", "scalar": {"value": 128.0}}]
    made = TaskTemplate(template(AURORA), "west").task_info(launch(3, 2, (31000,)), "agent-1", held, hostname="h1")
    executor = made["executor"]
    assigned = api.AssignedTask()
    TCyBinaryProtocol(TCyMemoryBuffer(b64decode(made["data"]))).read_struct(assigned)

    assert (f"thermos-{JOB}-3-2", "AuroraExecutor", made["data"]) == (
        executor["executor_id"]["value"],
        executor["name"],
        executor["data"],
    )
    assert (
        api.AssignedTask(
            taskId=f"{JOB}-3-2",
            slaveId="agent-1",
            slaveHost="h1",
            task=api.TaskConfig(tier="preferred"),
            assignedPorts={"http": 31000, "admin": 8080},
            instanceId=3,
        )
        == assigned
    )
    assert "command" not in made
    assert "./thermos" == executor["command"]["value"]
    assert {"A": "1", **IDS} == pairs(executor["command"]["environment"]["variables"], "name")
    # The executor's part is the pod's, which Mesos would add to the task's; memory would leave the task none.
    assert [("cpus", 0.75), ("mem", 128.0)] == [(one["name"], one["scalar"]["value"]) for one in made["resources"]]
    assert [("cpus", 0.25)] == [(one["name"], one["scalar"]["value"]) for one in executor["resources"]]


def test_another_executor_runs_as_it_is() -> None:
    """An executor with another id than the placeholder is not one of Aurora."""
    task = AURORA | {"executor": {**AURORA["executor"], "executorId": {"value": "mine"}}}
    made = info(task, (31000,))

    assert ("mine", AURORA["executor"]["data"]) == (made["executor"]["executor_id"]["value"], made["executor"]["data"])
    assert "data" not in made


IDS = {"PELOTON_JOB_ID": JOB, "PELOTON_INSTANCE_ID": "3", "PELOTON_TASK_ID": NAME}


@pytest.mark.parametrize(
    ("task", "ports", "expected"),
    [
        ({}, (), {}),
        ({"command": {"environment": {"variables": [{"name": "A", "value": "b"}]}}}, (), {"A": "b"}),
        ({"ports": [{"name": "http", "envName": "HTTP"}]}, (31000,), {"HTTP": "31000"}),
        ({"ports": [{"name": "http"}]}, (31000,), {}),
        ({"ports": [{"name": "admin", "value": 8080, "envName": "ADMIN"}]}, (), {"ADMIN": "8080"}),
        (
            {
                "ports": [
                    {"name": "a", "envName": "A"},
                    {"name": "s", "value": 80, "envName": "S"},
                    {"name": "b", "envName": "B"},
                ]
            },
            (31005, 31009),
            {"A": "31005", "B": "31009", "S": "80"},
        ),
    ],
)
def test_the_environment(task: dict[str, Any], ports: tuple[int, ...], expected: dict[str, str]) -> None:
    """The environment has the command's own variables, Peloton's, and one per named port; dynamic ports are in config
    order.
    """
    assert {**IDS, **expected} == environment(task, ports)


def test_variables_of_a_launch_give_way_to_those_of_the_command() -> None:
    """A variable that the command sets keeps its value."""
    task = {"command": {"environment": {"variables": [{"name": "RANK", "value": "mine"}]}}}
    pod = launch(3, 2)._replace(variables=(("RANK", "3"), ("WORLD_SIZE", "4")))
    made = TaskTemplate(template(task), "west").task_info(pod, "agent-1", RESOURCES)
    variables = made["command"]["environment"]["variables"]

    assert {**IDS, "RANK": "mine", "WORLD_SIZE": "4"} == pairs(variables, "name")
    assert 5 == len(variables)


@pytest.mark.parametrize(
    ("ports", "allocated", "stored", "discovered"),
    [
        ([], (), {}, None),
        ([{"name": "http"}], (31000,), {"http": 31000}, [{"name": "http", "number": 31000}]),
        ([{"name": "admin", "value": 80}], (), {}, [{"name": "admin", "number": 80}]),
        (
            [{"name": "admin", "value": 80}, {"name": "http"}],
            (31000,),
            {"http": 31000},
            [{"name": "http", "number": 31000}, {"name": "admin", "number": 80}],
        ),
    ],
)
def test_ports(
    ports: list[Any], allocated: tuple[int, ...], stored: dict[str, int], discovered: list[Any] | None
) -> None:
    """Dynamic ports alone are stored with the pod; all of them can be discovered from outside."""
    assert stored == template({"ports": ports}).ports(allocated)
    discovery = info({"ports": ports}, allocated).get("discovery")
    if discovered is None:
        assert discovery is None
    else:
        assert {"visibility": "EXTERNAL", "name": JOB, "ports": {"ports": discovered}} == discovery


def test_ports_that_do_not_match_the_config_are_refused() -> None:
    """A placement with ports for another config is an error, not a guess."""
    with pytest.raises(ValueError, match="zip"):
        template({"ports": [{"name": "http"}]}).ports(())


def test_labels() -> None:
    """A user's labels stay except ones with a reserved prefix; the reserved labels identify the pod."""
    task = {"labels": [{"key": "stage", "value": "prod"}, {"key": "peloton.job_id", "value": "forged"}]}

    assert {
        "stage": "prod",
        "peloton.cluster": "west",
        "peloton.job_name": "train",
        "peloton.job_owner": "maps",
        "peloton.job_type": "BATCH",
        "peloton.resource_pool": "/eng/ml",
        "peloton.job_id": JOB,
        "peloton.instance_id": "3",
        "peloton.task_id": NAME,
    } == labels(task)


@pytest.mark.parametrize(("asked_s", "grace_s"), [(0, 30), (5, 5), (3600, 3600)])
def test_the_kill_grace(asked_s: int, grace_s: int) -> None:
    """The grace is 30 seconds unless the config sets its own."""
    policy = info({"killGracePeriodSeconds": asked_s})["kill_policy"]

    assert {"grace_period": {"nanoseconds": grace_s * 1_000_000_000}} == policy


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        (
            {"type": "COMMAND", "commandCheck": {"command": "probe"}},
            {"type": "COMMAND", "command": {"shell": True, "value": "probe"}}
            | {"delay_seconds": 15, "interval_seconds": 10, "timeout_seconds": 20, "consecutive_failures": 3},
        ),
        (
            {
                "type": "HTTP",
                "httpCheck": {"scheme": "http", "port": 8080, "path": "/health"},
                "initialIntervalSecs": 1,
                "intervalSecs": 2,
                "timeoutSecs": 3,
                "maxConsecutiveFailures": 4,
            },
            {"type": "HTTP", "http": {"scheme": "http", "port": 8080, "path": "/health"}}
            | {"delay_seconds": 1, "interval_seconds": 2, "timeout_seconds": 3, "consecutive_failures": 4},
        ),
    ],
)
def test_health_checks(check: dict[str, Any], expected: dict[str, Any]) -> None:
    """Checks of either kind have the defaults of the original."""
    assert expected == info({"healthCheck": check})["health_check"]


@pytest.mark.parametrize(("name", "number"), [("web", 31_007), ("admin", 8080)])
def test_an_http_check_of_a_named_port_asks_the_port_that_the_pod_has(name: str, number: int) -> None:
    """The port may be dynamic, so that each pod has another, or fixed."""
    ports = [{"name": "debug", "envName": "D"}, {"name": "admin", "value": 8080}, {"name": "web", "envName": "W"}]
    check = {"type": "HTTP", "httpCheck": {"portName": name, "path": "/health"}}

    shared = TaskTemplate(template({"ports": ports, "healthCheck": check}), "west")
    made = [shared.task_info(launch(n, 1, (1, 31_000 + n)), "agent-1", RESOURCES)["health_check"] for n in (6, 7)]

    assert {"scheme": "http", "port": number, "path": "/health"} == made[1]["http"]
    assert (number if name == "admin" else 31_006) == made[0]["http"]["port"]
    assert "HTTP" == made[1]["type"]


def test_a_container_is_passed_on_as_it_is() -> None:
    """Mesos receives the container as the user wrote it."""
    container = {"type": "MESOS", "mesos": {"image": {"type": "DOCKER", "docker": {"name": "busybox"}}}}

    assert container == info({"container": container})["container"]


def test_one_pod_does_not_show_in_the_next() -> None:
    """A template is shared: additions for one pod are in its own task alone."""
    shared = TaskTemplate(template({"command": {"environment": {"variables": [{"name": "A", "value": "b"}]}}}), "west")

    first = shared.task_info(launch(1, 1), "agent-1", RESOURCES)
    second = shared.task_info(launch(2, 1), "agent-2", RESOURCES)

    assert len(first["command"]["environment"]["variables"]) == len(second["command"]["environment"]["variables"])
    assert len(first["labels"]["labels"]) == len(second["labels"]["labels"])


def test_a_job_or_a_pod_may_be_revocable() -> None:
    """A revocable job or pod runs on slack; its resources come from the config."""
    asked = {"resource": {"cpuLimit": 1.5, "memLimitMb": 64}}

    assert Resources(1_500, 64) == template(asked).resources
    assert [False, True, True] == [
        template(asked).revocable,
        template(asked, revocable=True).revocable,
        template({**asked, "revocable": True}).revocable,
    ]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("TASK_STAGING", PodState.LAUNCHED),
        ("TASK_STARTING", PodState.STARTING),
        ("TASK_RUNNING", PodState.RUNNING),
        ("TASK_KILLING", PodState.RUNNING),
        ("TASK_FINISHED", PodState.SUCCEEDED),
        ("TASK_FAILED", PodState.FAILED),
        ("TASK_ERROR", PodState.FAILED),
        ("TASK_KILLED", PodState.KILLED),
        ("TASK_LOST", PodState.LOST),
        ("TASK_DROPPED", PodState.LOST),
        ("TASK_GONE", PodState.LOST),
        ("TASK_GONE_BY_OPERATOR", PodState.LOST),
    ],
)
def test_every_state_has_its_counterpart(state: str, expected: PodState) -> None:
    """All states of Mesos for a framework without partition awareness, and the ends for one with
    it, have a counterpart.
    """
    status = {
        "task_id": {"value": f"{JOB}-3-2"},
        "state": state,
        "timestamp": 1.5,
        "agent_id": {"value": "agent-1"},
        "message": "why",
        "reason": "REASON_X",
        "healthy": True,
    }

    known = PodStatus(PodId(JOB, 3, 2), expected, 1_500_000_000, "", "agent-1", "why", "REASON_X", True)
    assert (known, expected.value) == (report_of(status).status, report_of(status).state_text)


@pytest.mark.parametrize(
    ("task_id", "state"),
    [
        (f"{JOB}-3-2", "TASK_UNREACHABLE"),
        (f"{JOB}-3-2", "TASK_UNKNOWN"),
        ("someone-else", "TASK_RUNNING"),
        (f"{JOB}-3", "TASK_RUNNING"),
        (f"{JOB}-three-2", "TASK_RUNNING"),
        ("a-b-c-d-e-3-2", "TASK_RUNNING"),
        ("", "TASK_RUNNING"),
    ],
)
def test_updates_of_foreign_pods_are_no_status(task_id: str, state: str) -> None:
    """Storage does not receive the update: one such update in a batch would fail all the others."""
    report = report_of({"task_id": {"value": task_id}, "state": state})
    assert (task_id, None) == (report.pod, report.status)


def test_active_agents_have_totals_and_an_address() -> None:
    """An agent that is disconnected or deactivated offers nothing and counts for nothing."""
    agent = {"id": {"value": "S0"}, "hostname": "h1", "resources": RESOURCES}
    answer = {
        "get_agents": {
            "agents": [
                {
                    "agent_info": agent,
                    "active": True,
                    "pid": "slave(7)@10.0.0.1:5051",
                    "total_resources": [*RESOURCES, {**RESOURCES[0], "revocable": {}}],
                    "allocated_resources": [{**RESOURCES[0], "scalar": {"value": 0.5}, "revocable": {}}],
                },
                {"agent_info": {**agent, "hostname": "h2"}, "active": False, "pid": "slave(1)@10.0.0.2:5051"},
            ]
        }
    }

    (found,) = AgentReader().read([orjson.dumps(answer)])
    assert ("slave(7)", "10.0.0.1:5051") == (found.process, found.address)
    assert ("S0", "h1", "10.0.0.1") == (found.host.host_id, found.host.hostname, found.host.ip)
    assert (1_000, 1_000, 500) == (
        found.host.capacity.cpu_milli,
        found.host.revocable.cpu_milli,
        found.host.revocable_held.cpu_milli,
    )


def test_a_report_says_what_acknowledges_it() -> None:
    """A status of Mesos itself has no uuid and is sent once; an answer to a reconciliation is marked."""
    status = {"task_id": {"value": f"{JOB}-3-2"}, "agent_id": {"value": "agent-1"}, "state": "TASK_LOST"}
    again = report_of({**status, "uuid": "dQ=="})
    once = report_of({**status, "reason": "REASON_RECONCILIATION"})

    known = {"agent_id": {"value": "agent-1"}, "task_id": {"value": f"{JOB}-3-2"}, "uuid": "dQ=="}
    assert {"type": "ACKNOWLEDGE", "acknowledge": known} == acknowledge_call(again.token)
    assert (False, (), True) == (again.is_answer, once.token, once.is_answer)


def test_secrets_of_the_job_are_volumes() -> None:
    """Secrets are added to the configured volumes, in a container that is created if it is missing."""
    host = {"mode": "RW", "container_path": "/data", "host_path": "/mnt"}
    configured = {"container": {"type": "MESOS", "volumes": [host]}}
    plain, own = template({}), template(configured)
    found = []
    for made in (plain, own):
        with_secret = PodTemplate(made.job, made.pool_path, made.config, [Secret("a", "/run/key", b"\x00x")])
        found.append(TaskTemplate(with_secret, "west").task_info(launch(3, 2), "agent-1", RESOURCES)["container"])

    value = {"type": "SECRET", "secret": {"type": "VALUE", "value": {"data": "AHg="}}}
    secret = {"mode": "RO", "container_path": "/run/key", "source": value}
    assert [{"type": "MESOS", "volumes": [secret]}, {"type": "MESOS", "volumes": [host, secret]}] == found


def test_a_task_that_takes_less_than_its_pod_asks_for_has_limits() -> None:
    """The limits allow the pod its full demand; equal amounts need no limits, since Mesos applies the allocation."""
    made = template({"resource": {"cpuLimit": 1.5, "memLimitMb": 100}})
    task = TaskTemplate(made, "west")

    less = task.task_info(PodLaunch(PodId(JOB, 3, 2), made, (), factors=Factors(160)), "a", RESOURCES)
    same = task.task_info(PodLaunch(PodId(JOB, 3, 2), made, ()), "a", RESOURCES)

    assert {"cpus": {"value": 1.5}, "mem": {"value": 100.0}} == less["limits"]
    assert "limits" not in same


@pytest.mark.parametrize(
    ("isolation", "kind", "expected"),
    [
        ("cgroups/cpu,cgroups/mem", "MESOS", ["cpus", "mem"]),
        ("cgroups/mem", "MESOS", ["mem"]),
        ("posix/cpu,posix/mem", "MESOS", []),
        ("posix/cpu,posix/mem", "DOCKER", ["cpus", "mem"]),
    ],
)
def test_limits_are_sent_where_the_agent_keeps_them(isolation: str, kind: str, expected: list[str]) -> None:
    """An agent rejects a limit without its isolator; Docker needs none."""
    container = {"type": kind, "docker": {"image": "app"}} if kind == "DOCKER" else {"type": kind}
    made = template({"resource": {"cpuLimit": 1.5, "memLimitMb": 100}, "container": container})
    pod = PodLaunch(PodId(JOB, 3, 2), made, (), factors=Factors(160))

    sent = TaskTemplate(made, "west").task_info(pod, "a", RESOURCES, Isolators.read(isolation))

    assert expected == sorted(sent.get("limits", ()))
