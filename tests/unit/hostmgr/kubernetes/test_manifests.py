"""Configurations of pods as the JSON that an apiserver takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from google.protobuf.json_format import ParseDict

from peloton.api.convert import new_job_record
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.errors import InvalidArgument
from peloton.model.ids import JobId, PodId
from peloton.model.resources import Resources, compute_needed
from peloton.model.secret import Secret
from services.hostmgr.driver import PodLaunch, PodTemplate
from services.hostmgr.kubernetes.pods import statuses
from services.hostmgr.kubernetes.pods.manifests import PodManifest
from services.hostmgr.kubernetes.settings import KubernetesSettings

Json = dict[str, Any]
FPGA = "example.com/fpga"
JOB = JobId("00000000-0000-4000-8000-000000000001")
SETTINGS = KubernetesSettings("in-cluster", cluster="west", default_image="plain:1")
DOCKER: Json = {"type": "DOCKER", "docker": {"image": "app:7"}}
MESOS: Json = {"type": "MESOS", "mesos": {"image": {"type": "DOCKER", "docker": {"name": "app:7"}}}}


def template(task: Json, revocable: bool = False) -> PodTemplate:
    job = job_pb2.JobConfig(name="train", owningTeam="maps", type=job_pb2.BATCH, instanceCount=4)
    job.sla.revocable = revocable
    return PodTemplate(new_job_record(JOB, job, 1), "/eng/ml", ParseDict(task, task_pb2.TaskConfig()))


def manifest(task: Json, ports: tuple[int, ...] = (), revocable: bool = False) -> Json:
    made = template(task, revocable)
    body: Json = orjson.loads(PodManifest(made, SETTINGS).body(PodLaunch(PodId(JOB, 3, 2), made, ports), "node-1"))
    return body


def container(task: Json, ports: tuple[int, ...] = (), revocable: bool = False) -> Json:
    only: Json
    (only,) = manifest(task, ports, revocable)["spec"]["containers"]
    return only


def environment(task: Json, ports: tuple[int, ...] = ()) -> Json:
    return {each["name"]: each["value"] for each in container(task, ports)["env"]}


def test_a_pod_is_named_after_its_run() -> None:
    """The pod is bound to its node, restarts nothing, and has no account and no service addresses."""
    made = manifest({"command": {"value": "true"}, "killGracePeriodSeconds": 7})

    assert (f"{JOB}-3-2", "node-1") == (made["metadata"]["name"], made["spec"]["nodeName"])
    spec = {key: value for key, value in made["spec"].items() if key not in ("containers", "tolerations", "nodeName")}
    assert spec == {
        "schedulerName": "peloton",
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 7,
        "priorityClassName": "peloton",
    }
    assert {"key": "peloton.io/dedicated", "operator": "Exists"} in made["spec"]["tolerations"]
    toleration_s = [each.get("tolerationSeconds") for each in made["spec"]["tolerations"]]
    assert [60, 60, None] == toleration_s


SH = ["/bin/sh", "-c"]
COMMANDS: list[tuple[Json, Json, Json]] = [
    #  container, command, the part of it in the pod
    ({}, {"value": "echo $HOME"}, {"command": [*SH, "echo $HOME"]}),
    (DOCKER, {"value": "a b", "arguments": ["c"]}, {"command": [*SH, "a b"]}),
    (DOCKER, {"shell": False, "value": "serve", "arguments": ["-v"]}, {"args": ["serve", "-v"]}),
    (DOCKER, {"shell": False, "arguments": ["-v"]}, {"args": ["-v"]}),
    (DOCKER, {"shell": False}, {}),
    (
        MESOS,
        {"shell": False, "value": "/bin/app", "arguments": ["app", "-v"]},
        {"command": ["/bin/app"], "args": ["-v"]},
    ),
    (MESOS, {"shell": False, "value": "/bin/app"}, {"command": ["/bin/app"]}),
    (MESOS, {}, {}),
    ({}, {"value": "kill $$; echo $(date) $(A)"}, {"command": [*SH, "kill $$$; echo $$(date) $$(A)"]}),
]


@pytest.mark.parametrize(("kind", "command", "expected"), COMMANDS)
def test_a_command_means_what_it_means_on_mesos(kind: Json, command: Json, expected: Json) -> None:
    """The command is a line for the shell, a program with its arguments, or the default of the image; the kubelet
    expands nothing.
    """
    made = container({"command": command} | ({"container": kind} if kind else {}))

    assert expected == {key: made[key] for key in ("command", "args") if key in made}


@pytest.mark.parametrize(("kind", "image"), [({}, "plain:1"), (DOCKER, "app:7"), (MESOS, "app:7")])
def test_an_image(kind: Json, image: str) -> None:
    """The image is that of either kind of container, or the default of the cluster."""
    made = container({"command": {"value": "true"}} | ({"container": kind} if kind else {}))

    assert (image, None) == (made["image"], made.get("imagePullPolicy"))


def test_an_image_that_is_to_be_fetched_each_time() -> None:
    """The pull policy Always can be set by either kind of container."""
    docker = {"type": "DOCKER", "docker": {"image": "app:7", "force_pull_image": True}}
    mesos = {"type": "MESOS", "mesos": {"image": {"type": "DOCKER", "cached": False, "docker": {"name": "app:7"}}}}

    assert ["Always", "Always"] == [container({"container": each})["imagePullPolicy"] for each in (docker, mesos)]


def test_requests_are_limits() -> None:
    """The pod is Guaranteed; a pod without demand requests the minimum."""
    asked: Json = {"cpuLimit": 1.5, "memLimitMb": 100.2, "diskLimitMb": 10, "gpuLimit": 2}
    asked["extended"] = {FPGA: 3, "license/x": 1}
    amounts = {"cpu": "1500m", "memory": "101Mi", "ephemeral-storage": "10Mi", "nvidia.com/gpu": "2", FPGA: "3"}

    assert {"requests": amounts, "limits": amounts} == container({"resource": asked})["resources"]
    assert {"requests": {"cpu": "10m"}} == container({})["resources"]


def test_a_revocable_pod_requests_no_cpu() -> None:
    """The cpu of a revocable pod is borrowed; its memory is its own."""
    task = {"resource": {"cpuLimit": 1.5, "memLimitMb": 100}}
    made = manifest(task, revocable=True)

    assert {"requests": {"memory": "100Mi"}, "limits": {"memory": "100Mi"}} == container(task, (), True)["resources"]
    assert (1_500, 0) == (statuses.revocable_cpu_milli(made), statuses.sum_occupied(made).cpu_milli)
    assert {} == container({"resource": {"cpuLimit": 1}}, (), True)["resources"]


@pytest.mark.parametrize(
    "task",
    [
        {"resource": {"cpuLimit": 0.25, "memLimitMb": 64, "gpuLimit": 1, "extended": {FPGA: 2, "license/x": 1}}},
        {"resource": {"extended": {FPGA: 1}}},
        {},
    ],
)
def test_what_a_pod_takes_is_what_it_was_given(task: Json) -> None:
    """The ledger reads the placed amounts from a pod."""
    taken = statuses.sum_occupied(manifest(task))

    assert taken == compute_needed(template(task).resources)


def test_ports_are_those_of_the_node() -> None:
    """Dynamic ports are the allocated ones, in the environment and by name if Kubernetes accepts it."""
    ports = [
        {"name": "http", "envName": "PORT"},
        {"name": "Admin_Port", "envName": "ADMIN", "value": 8080},
        {"name": "a-name-that-is-too-long", "envName": "LONG"},
    ]

    made = container({"ports": ports}, (31_000, 31_001))

    assert made["ports"] == [
        {"containerPort": 31_000, "hostPort": 31_000, "name": "http"},
        {"containerPort": 8080, "hostPort": 8080, "name": "admin-port"},
        {"containerPort": 31_001, "hostPort": 31_001},
    ]
    numbers = environment({"ports": ports}, (31_000, 31_001))
    assert ("31000", "8080", "31001") == (numbers["PORT"], numbers["ADMIN"], numbers["LONG"])
    assert {31_000, 31_001, 8080} == statuses.ports(manifest({"ports": ports}, (31_000, 31_001)))


def test_the_environment_is_that_of_mesos() -> None:
    """The variables of the pod come first, and Peloton's after them."""
    variables = [{"name": "A", "value": "$(B) $C"}, {"name": "EMPTY"}]

    assert environment({"command": {"value": "true", "environment": {"variables": variables}}}) == {
        "A": "$$(B) $C",
        "EMPTY": "",
        "PELOTON_JOB_ID": JOB,
        "PELOTON_INSTANCE_ID": "3",
        "PELOTON_TASK_ID": f"{JOB}-3",
    }


def test_a_secret_comes_from_the_cluster() -> None:
    """A secret is a variable, a file, a folder of files, or the credential of the image's registry."""
    key = {"type": "REFERENCE", "reference": {"name": "db", "key": "password"}}
    folder = {"type": "REFERENCE", "reference": {"name": "db"}}
    image = {
        "type": "DOCKER",
        "docker": {"name": "app:7", "config": {"type": "REFERENCE", "reference": {"name": "reg"}}},
    }
    task = {
        "command": {"environment": {"variables": [{"name": "PASSWORD", "type": "SECRET", "secret": key}]}},
        "container": {
            "type": "MESOS",
            "mesos": {"image": image},
            "volumes": [
                {"mode": "RO", "container_path": f"/run/{name}", "source": {"type": "SECRET", "secret": secret}}
                for name, secret in (("password", key), ("all", folder))
            ],
        },
    }

    made = manifest(task)

    (only,) = made["spec"]["containers"]
    assert {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}} == only["env"][0]
    assert [{"name": "reg"}] == made["spec"]["imagePullSecrets"]
    assert [{"name": "volume-0", "secret": {"secretName": "db"}}] == made["spec"]["volumes"]
    assert only["volumeMounts"] == [
        {"name": "volume-0", "mountPath": "/run/password", "readOnly": True, "subPath": "password"},
        {"name": "volume-0", "mountPath": "/run/all", "readOnly": True},
    ]


def test_variables_of_a_launch_are_in_all_containers_and_give_way_to_their_own() -> None:
    """A variable that a container sets keeps its value there."""
    own = {"command": {"environment": {"variables": [{"name": "RANK", "value": "mine"}]}}}
    made = template({**own, "initContainers": [{"name": "setup"}]})
    launch = PodLaunch(PodId(JOB, 3, 2), made, (), variables=(("RANK", "3"), ("WORLD_SIZE", "4")))

    spec = orjson.loads(PodManifest(made, SETTINGS).body(launch, "node-1"))["spec"]

    found = [
        [(each["name"], each["value"]) for each in one["env"]] for one in spec["containers"] + spec["initContainers"]
    ]
    assert [[("RANK", "mine"), ("WORLD_SIZE", "4")], [("RANK", "3"), ("WORLD_SIZE", "4")]] == [
        [(name, value) for name, value in one if not name.startswith("PELOTON")] for one in found
    ]


def test_secrets_of_the_job_are_files_of_all_containers() -> None:
    """The names of the Secrets identify their data; the pod has no part of that data."""
    made = template({"initContainers": [{"name": "setup"}]})
    secret = Secret("00000000-0000-4000-8000-00000000000a", "/run/key", b"open sesame", 3)
    own = PodTemplate(made.job, made.pool_path, made.config, [secret])

    body = PodManifest(own, SETTINGS).body(PodLaunch(PodId(JOB, 3, 2), own, ()), "node-1")

    spec = orjson.loads(body)["spec"]
    name = "peloton-west-00000000-0000-4000-8000-00000000000a-3"
    assert [{"name": "volume-0", "secret": {"secretName": name}}] == spec["volumes"]
    mount = {"name": "volume-0", "mountPath": "/run/key", "readOnly": True, "subPath": "data"}
    assert [[mount]] * 2 == [each["volumeMounts"] for each in (*spec["containers"], *spec["initContainers"])]
    assert b"sesame" not in body


def test_volumes() -> None:
    """Volumes are host paths, and folders that live as long as the pod."""
    volumes = [
        {"mode": "RW", "container_path": "/data", "host_path": "/mnt/data"},
        {"mode": "RO", "container_path": "/etc/x", "source": {"type": "HOST_PATH", "host_path": {"path": "/etc/x"}}},
        {"mode": "RW", "container_path": "/tmp/s", "source": {"type": "SANDBOX_PATH", "sandbox_path": {"path": "s"}}},
    ]

    made = manifest({"container": {**MESOS, "volumes": volumes}})

    sources = [{key: value for key, value in each.items() if key != "name"} for each in made["spec"]["volumes"]]
    assert [{"hostPath": {"path": "/mnt/data"}}, {"hostPath": {"path": "/etc/x"}}, {"emptyDir": {}}] == sources
    mounts = made["spec"]["containers"][0]["volumeMounts"]
    assert [("/data", None), ("/etc/x", True), ("/tmp/s", None)] == [
        (m["mountPath"], m.get("readOnly")) for m in mounts
    ]


def test_a_health_check_decides_life_and_readiness() -> None:
    """The probe has all numbers of the check; missing ones are Mesos's defaults."""
    check = {"initialIntervalSecs": 1, "intervalSecs": 2, "timeoutSecs": 3, "maxConsecutiveFailures": 4}
    made = container({"healthCheck": {**check, "type": "COMMAND", "commandCheck": {"command": "test -e ok"}}})
    http = container({"healthCheck": {"type": "HTTP", "httpCheck": {"scheme": "https", "port": 8080, "path": "/up"}}})

    assert made["livenessProbe"] == {
        "initialDelaySeconds": 1,
        "periodSeconds": 2,
        "timeoutSeconds": 3,
        "failureThreshold": 4,
        "exec": {"command": [*SH, "test -e ok"]},
    }
    assert made["livenessProbe"] == made["readinessProbe"]
    assert http["readinessProbe"] == {
        "initialDelaySeconds": 15,
        "periodSeconds": 10,
        "timeoutSeconds": 20,
        "failureThreshold": 3,
        "httpGet": {"port": 8080, "path": "/up", "scheme": "HTTPS"},
    }


def test_an_http_check_of_a_named_port_asks_the_port_that_the_pod_has() -> None:
    """A container of several probes its own port, even if that is allocated after the ports of others."""
    web, admin = {"name": "web", "envName": "W"}, {"name": "admin", "envName": "A"}

    def check(name: str) -> Json:
        return {"type": "HTTP", "httpCheck": {"portName": name, "path": "/up"}}

    proxy = {"name": "proxy", "command": {"value": "a"}, "ports": [admin], "readinessCheck": check("admin")}
    made = manifest({"ports": [web], "healthCheck": check("web"), "otherContainers": [proxy]}, (31_001, 31_002))

    main, other = made["spec"]["containers"]
    probes = [main["livenessProbe"], main["readinessProbe"], other["readinessProbe"]]
    assert [31_001, 31_001, 31_002] == [probe["httpGet"]["port"] for probe in probes]
    assert ("/up", 15) == (probes[2]["httpGet"]["path"], probes[2]["initialDelaySeconds"])
    assert "livenessProbe" not in other


SEVERAL: Json = {
    "containerName": "web",
    "resource": {"cpuLimit": 1, "memLimitMb": 100},
    "ports": [{"name": "http", "envName": "PORT"}],
    "emptyDirs": [{"name": "shared", "containerPath": "/shared", "medium": "Memory", "sizeMB": 8}],
    "otherContainers": [
        {
            "name": "proxy",
            "container": DOCKER,
            "resource": {"cpuLimit": 0.5, "memLimitMb": 50},
            "ports": [{"name": "admin", "envName": "ADMIN"}, {"name": "fixed", "envName": "FIXED", "value": 9000}],
            "readinessCheck": {"type": "COMMAND", "commandCheck": {"command": "test -e /shared/$$"}},
            "emptyDirs": [
                {"name": "shared", "containerPath": "/in", "readOnly": True, "medium": "Memory", "sizeMB": 8}
            ],
        }
    ],
    "initContainers": [{"name": "setup", "command": {"value": "make"}, "resource": {"cpuLimit": 2, "memLimitMb": 10}}],
}


def test_several_containers() -> None:
    """Each container has its own image, amounts, ports and checks; all have the ports of all, and
    share folders by name.
    """
    spec = manifest(SEVERAL, (31_000, 31_001))["spec"]
    web, proxy = spec["containers"]
    (setup,) = spec["initContainers"]

    assert ["web", "proxy", "setup"] == [each["name"] for each in (web, proxy, setup)]
    assert ["plain:1", "app:7", "plain:1"] == [each["image"] for each in (web, proxy, setup)]
    assert [("31000", "31001", "9000")] * 3 == [
        tuple({each["name"]: each["value"] for each in one["env"]}[name] for name in ("PORT", "ADMIN", "FIXED"))
        for one in (web, proxy, setup)
    ]
    assert [[31_000], [31_001, 9000]] == [[port["hostPort"] for port in one["ports"]] for one in (web, proxy)]
    assert [{"name": "volume-0", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}}] == spec["volumes"]
    assert [{"name": "volume-0", "mountPath": "/in", "readOnly": True}] == proxy["volumeMounts"]
    assert "livenessProbe" not in proxy
    assert [*SH, "test -e /shared/$$$"] == proxy["readinessProbe"]["exec"]["command"]


def test_several_containers_take_what_was_placed() -> None:
    """The amounts are the sum of parallel containers, or the largest init container."""
    made = template(SEVERAL)

    assert Resources(2_000, 150) == made.resources == statuses.sum_occupied(manifest(SEVERAL, (31_000, 31_001)))
    assert [("http", "PORT"), ("admin", "ADMIN")] == made.dynamic_ports


@pytest.mark.parametrize(("gang_size", "is_on", "has_name"), [(2, True, True), (2, False, False), (1, True, False)])
def test_pods_of_a_gang_have_names_in_its_service(gang_size: int, is_on: bool, has_name: bool) -> None:
    """A name of the configuration, which all pods of the job would share, gives way to it."""
    job = job_pb2.JobConfig(name="train", type=job_pb2.BATCH, instanceCount=4)
    job.sla.minimumRunningInstances = gang_size
    task = ParseDict({"container": {"type": "MESOS", "hostname": "own"}}, task_pb2.TaskConfig())
    made = PodManifest(
        PodTemplate(new_job_record(JOB, job, 1), "/eng", task), replace(SETTINGS, gang_services=is_on)
    ).body(PodLaunch(PodId(JOB, 3, 2), PodTemplate(new_job_record(JOB, job, 1), "/eng", task), ()), "node-1")
    spec = orjson.loads(made)["spec"]

    expected = ("instance-3", f"gang-{JOB}") if has_name else ("own", None)
    assert expected == (spec["hostname"], spec.get("subdomain"))


def test_labels() -> None:
    """An invalid Kubernetes label is an annotation; reserved labels cannot be set."""
    given = {
        "tier": "gold",
        "path": "/a/b",
        "peloton.io/run": "9",
        "peloton.job_id": "9",
        "bad key": "x",
        "kind": "y" * 70,
    }
    metadata = manifest({"labels": [{"key": key, "value": value} for key, value in given.items()]})["metadata"]

    assert metadata["labels"] == {
        "peloton.io/cluster": "west",
        "peloton.io/job": JOB,
        "peloton.io/instance": "3",
        "peloton.io/run": "2",
        "peloton.io/job-name": "train",
        "peloton.io/owner": "maps",
        "peloton.io/job-type": "BATCH",
        "tier": "gold",
    }
    assert metadata["annotations"] == {
        "peloton.io/pool": "/eng/ml",
        "path": "/a/b",
        "peloton.io/label.bad-key": "bad key=x",
        "kind": "y" * 70,
    }


MESOS_ONLY: dict[str, Json] = {
    "an executor of its own": {"executor": {"executor_id": {"value": "x"}}},
    "URIs to fetch": {"command": {"uris": [{"value": "http://a/b"}]}},
    "parameters of Docker": {
        "container": {"type": "DOCKER", "docker": {"image": "a", "parameters": [{"key": "a", "value": "b"}]}}
    },
    "a user by name": {"command": {"user": "alice"}},
    "a part of a GPU": {"resource": {"gpuLimit": 0.5}},
    "a volume at work, in the sandbox": {
        "container": {**MESOS, "volumes": [{"mode": "RW", "container_path": "work", "host_path": "/a"}]}
    },
    "a volume at /work of a host path in the sandbox": {
        "container": {**MESOS, "volumes": [{"mode": "RW", "container_path": "/work", "host_path": "a"}]}
    },
    "a network by name, or none at all": {"container": {**MESOS, "network_infos": [{"name": "blue"}]}},
}


@pytest.mark.parametrize("what", MESOS_ONLY)
def test_what_only_mesos_can_do_is_refused_by_name(what: str) -> None:
    """No field of a configuration is dropped silently."""
    with pytest.raises(InvalidArgument) as refusal:
        manifest(MESOS_ONLY[what])

    assert f"the pod requests features that Kubernetes does not have: {what}" == refusal.value.message


@pytest.mark.parametrize(("user", "number"), [("root", 0), ("1000", 1000)])
def test_a_user_is_a_number(user: str, number: int) -> None:
    """The user is a number or root."""
    assert {"runAsUser": number} == container({"command": {"user": user}})["securityContext"]


def test_pods_of_one_template_differ_in_their_own_words_only() -> None:
    """The rendered template keeps no value of a single pod."""
    made = template({"ports": [{"name": "http", "envName": "PORT"}]})
    rendered = PodManifest(made, SETTINGS)

    one, other = (
        rendered.body(PodLaunch(PodId(JOB, number, 1), made, (31_000 + number,)), f"node-{number}") for number in (1, 2)
    )

    assert orjson.loads(other) == orjson.loads(
        one.replace(f"{JOB}-1-1".encode(), f"{JOB}-2-1".encode())
        .replace(f"{JOB}-1".encode(), f"{JOB}-2".encode())
        .replace(b"31001", b"31002")
        .replace(b"node-1", b"node-2")
        .replace(b'"peloton.io/instance":"1"', b'"peloton.io/instance":"2"')
        .replace(b'"PELOTON_INSTANCE_ID","value":"1"', b'"PELOTON_INSTANCE_ID","value":"2"')
    )
