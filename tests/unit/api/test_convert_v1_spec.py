"""Conversion of v1alpha specs to configurations and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.api import convert_v1_spec as convert
from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.pod.apachemesos import apachemesos_pb2
from peloton.api.v1alpha.volume import volume_pb2
from peloton.errors import InvalidArgument
from tests.unit.api.v1_specs import pod_specs, task_configs


@given(task_configs())
def test_a_task_comes_back_as_it_was(task: task_pb2.TaskConfig) -> None:
    """A v0 service that is read through v1alpha and sent back is unchanged."""
    assert convert.task_config(convert.pod_spec(task)) == task


@given(pod_specs())
def test_a_spec_read_back_means_the_same(pod: pod_pb2.PodSpec) -> None:
    """A returned spec, which has both forms, is converted to the same configuration as the client's."""
    sent = stateless_pb2.JobSpec(default_spec=pod)
    config = convert.job_config(sent)
    returned = convert.job_spec(config, sent.SerializeToString())
    again = convert.job_spec(config, returned.SerializeToString())

    assert convert.job_config(returned) == config
    assert convert.job_config(again) == config
    assert convert.job_spec(config, again.SerializeToString()) == again


@given(pod_specs())
def test_own_words_read_back_are_enough(pod: pod_pb2.PodSpec) -> None:
    """A spec without the added Mesos messages equals the client's."""
    sent = stateless_pb2.JobSpec(default_spec=pod)
    returned = convert.job_spec(convert.job_config(sent), sent.SerializeToString())
    for field in ("container", "command", "executor"):
        returned.default_spec.containers[0].ClearField(field)

    assert returned == sent


def test_a_command_given_in_words_keeps_its_shell() -> None:
    """Mesos's default of shell is true, v1alpha's is false: an unset flag is returned as its effective value."""
    pod = convert.pod_spec(task_pb2.TaskConfig(command=mesos_pb2.CommandInfo(value="a && b")))
    pod.containers[0].ClearField("command")

    assert convert.task_config(pod).command == mesos_pb2.CommandInfo(value="a && b", shell=True)


@given(pod_specs())
def test_a_spec_read_back_keeps_the_words_of_its_client(pod: pod_pb2.PodSpec) -> None:
    """The returned spec keeps v1alpha's fields, including the ones that v0 does not have."""
    sent = stateless_pb2.JobSpec(default_spec=pod)
    returned = convert.job_spec(convert.job_config(sent), sent.SerializeToString()).default_spec

    before, after = pod.containers[0], returned.containers[0]
    for field in ("name", "image", "environment", "volume_mounts", "readiness_check", "liveness_check"):
        assert getattr(after, field) == getattr(before, field), field
    assert list(returned.volumes) == list(pod.volumes)
    assert list(returned.host_ports) == list(pod.host_ports)


@given(st.integers(0, 3), st.lists(st.integers(0, 2), unique=True), task_configs(), task_configs())
def test_a_job_comes_back_as_it_was(
    count: int, overridden: list[int], default: task_pb2.TaskConfig, override: task_pb2.TaskConfig
) -> None:
    """All fields of a service's configuration are converted in both directions, the SLA's own one included."""
    config = job_pb2.JobConfig(
        name="web",
        type=job_pb2.SERVICE,
        owningTeam="maps",
        owner="ada",
        ldapGroups=["g"],
        description="serves",
        instanceCount=count,
        defaultConfig=default,
    )
    config.sla.CopyFrom(
        job_pb2.SlaConfig(priority=1, preemptible=True, maximumUnavailableInstances=2, strictUpdates=True)
    )
    config.labels.add(key="k", value="v")
    config.respoolID.value = "pool"
    for instance in overridden:
        config.instanceConfig[instance].CopyFrom(override)
    for task in (config.defaultConfig, *config.instanceConfig.values()):
        task.revocable = False  # as in the SLA, which overrides the tasks

    assert convert.job_config(convert.job_spec(config)) == config


@pytest.mark.parametrize("has_sla", [True, False])
@pytest.mark.parametrize("has_default", [True, False])
@pytest.mark.parametrize("revocable", [True, False])
def test_the_sla_overrules_the_pods(has_sla: bool, has_default: bool, revocable: bool) -> None:
    """The SLA's revocable replaces every pod's, if there are an SLA and a default spec."""
    spec = stateless_pb2.JobSpec()
    spec.instance_spec[0].revocable = not revocable
    if has_sla:
        spec.sla.revocable = revocable
        spec.sla.SetInParent()
    if has_default:
        spec.default_spec.revocable = not revocable
        spec.default_spec.SetInParent()
    config = convert.job_config(spec)

    overruled = revocable if has_sla and has_default else not revocable
    assert config.instanceConfig[0].revocable is overruled
    assert config.defaultConfig.revocable is (overruled if has_default else False)


def several() -> pod_pb2.PodSpec:
    """Return a pod whose containers share a folder, in v1alpha's own fields."""
    pod = pod_pb2.PodSpec()
    pod.volumes.add(name="shared", type=volume_pb2.VolumeSpec.VOLUME_TYPE_EMPTY_DIR).empty_dir.size_in_mb = 8
    host = pod.volumes.add(name="host", type=volume_pb2.VolumeSpec.VOLUME_TYPE_HOST_PATH)
    host.host_path.path = "/data"
    for number, name in enumerate(("web", "proxy")):
        container = pod.containers.add(name=name, image=f"{name}:1")
        container.resource.cpu_limit = 1 + number
        container.entrypoint.value = name
        container.environment.add(name="A", value=name)
        container.ports.add(name=f"{name}-port", env_name=name.upper())
        container.volume_mounts.add(name="shared", mount_path="/shared", read_only=number == 1)
        container.volume_mounts.add(name="host", mount_path="/host")
        check = container.readiness_check
        check.enabled, check.type = True, pod_pb2.HealthCheckSpec.HEALTH_CHECK_TYPE_HTTP
        check.http_get.port, check.http_get.path, check.http_get.scheme = 80 + number, "/ready", "http"
    pod.init_containers.add(name="setup", image="setup:1").entrypoint.value = "make"
    return pod


def test_each_container_is_stored() -> None:
    """The first container is the task, the others are stored with it; each has its image, amounts, ports, folders
    and checks."""
    task = convert.task_config(several())

    (proxy,), (setup,) = task.otherContainers, task.initContainers
    assert ("web", "proxy", "setup") == (task.containerName, proxy.name, setup.name)
    assert ["web:1", "proxy:1", "setup:1"] == [part.container.mesos.image.docker.name for part in (task, proxy, setup)]
    assert (1, 2) == (task.resource.cpuLimit, proxy.resource.cpuLimit)
    assert ("WEB", "PROXY") == (task.ports[0].envName, proxy.ports[0].envName)
    assert ("web", "proxy", "make") == (task.command.value, proxy.command.value, setup.command.value)
    assert [(False, 8), (True, 8)] == [(part.emptyDirs[0].readOnly, part.emptyDirs[0].sizeMB) for part in (task, proxy)]
    assert [80, 81] == [part.readinessCheck.httpCheck.port for part in (task, proxy)]
    assert ["/data", "/data"] == [part.container.volumes[0].host_path for part in (task, proxy)]


def test_a_spec_of_several_containers_read_back_means_the_same() -> None:
    """A spec returned for a v1alpha client or for a v0 configuration is converted to the same configuration."""
    config = convert.job_config(stateless_pb2.JobSpec(default_spec=several()))

    sent = convert.job_spec(config, stateless_pb2.JobSpec(default_spec=several()).SerializeToString())
    reported = convert.job_spec(config)

    assert [config, config] == [convert.job_config(spec) for spec in (sent, reported)]
    assert convert.task_config(convert.pod_spec(config.defaultConfig)) == config.defaultConfig
    assert list(several().containers) == [strip_container(container) for container in sent.default_spec.containers]


def strip_container(container: pod_pb2.ContainerSpec) -> pod_pb2.ContainerSpec:
    """Remove all fields but v1alpha's own."""
    for field in ("container", "command", "executor"):
        container.ClearField(field)
    return container


def test_a_check_by_command_may_come_in_words() -> None:
    """The command of a check is quoted for a shell."""
    pod = pod_pb2.PodSpec(containers=[pod_pb2.ContainerSpec()])
    check = pod.containers[0].liveness_check
    check.command.value = "test"
    check.command.arguments.extend(["-e", "a b"])

    assert "test -e 'a b'" == convert.task_config(pod).healthCheck.commandCheck.command


@pytest.mark.parametrize(
    ("kills", "kind"),
    [(True, task_pb2.PreemptionPolicy.TYPE_PREEMPTIBLE), (False, task_pb2.PreemptionPolicy.TYPE_NON_PREEMPTIBLE)],
)
def test_preemption_policy(kills: bool, kind: int) -> None:
    """A present policy decides whether the pod is preemptible; otherwise the job does."""
    pod = pod_pb2.PodSpec(preemption_policy=pod_pb2.PreemptionPolicy(kill_on_preempt=kills))

    policy = convert.task_config(pod).preemptionPolicy
    assert (policy.type, policy.killOnPreempt) == (kind, kills)
    assert not convert.task_config(pod_pb2.PodSpec()).HasField("preemptionPolicy")


def a_pod(**fields: Any) -> pod_pb2.PodSpec:
    return pod_pb2.PodSpec(containers=[pod_pb2.ContainerSpec(**fields)])


def test_mesos_messages_win() -> None:
    """Container and command precede v1alpha's own fields, which are not merged with them."""
    pod = a_pod(
        image="new",
        entrypoint=pod_pb2.CommandSpec(value="new"),
        command=mesos_pb2.CommandInfo(value="old"),
        container=mesos_pb2.ContainerInfo(type=mesos_pb2.ContainerInfo.MESOS),
    )
    pod.mesos_spec.shell = True
    task = convert.task_config(pod)

    assert task.command == mesos_pb2.CommandInfo(value="old")
    assert task.container == mesos_pb2.ContainerInfo(type=mesos_pb2.ContainerInfo.MESOS)


def test_a_command_from_own_words() -> None:
    """Entrypoint and environment are converted to the command; without a Mesos spec the shell flag is unset."""
    pod = a_pod(
        entrypoint=pod_pb2.CommandSpec(value="serve", arguments=["--fast"]),
        environment=[pod_pb2.Environment(name="A", value="1")],
    )
    command = convert.task_config(pod).command

    assert (command.value, list(command.arguments)) == ("serve", ["--fast"])
    assert [(v.name, v.value) for v in command.environment.variables] == [("A", "1")]
    assert not command.HasField("shell")
    pod.mesos_spec.SetInParent()
    assert convert.task_config(pod).command.HasField("shell")
    assert not convert.task_config(pod).command.shell


def test_no_command_without_words_about_one() -> None:
    """A Mesos spec about the container sets no command; an empty entrypoint does."""
    pod = a_pod(image="web:1")
    pod.mesos_spec.type = apachemesos_pb2.PodSpec.CONTAINER_TYPE_DOCKER
    assert not convert.task_config(pod).HasField("command")
    pod.containers[0].entrypoint.SetInParent()

    assert convert.task_config(pod).command == mesos_pb2.CommandInfo(shell=False)


def test_a_container_from_own_words() -> None:
    """Image, docker parameters, network and mounts of host paths are converted to the container; other volumes are
    not."""
    pod = a_pod(
        image="web:1",
        volume_mounts=[
            pod_pb2.VolumeMount(name="data", mount_path="/data", read_only=True),
            pod_pb2.VolumeMount(name="scratch", mount_path="/tmp"),
        ],
    )
    host_path = volume_pb2.VolumeSpec.HostPathVolumeSource(path="/mnt/data")
    pod.volumes.add(name="data", type=volume_pb2.VolumeSpec.VOLUME_TYPE_HOST_PATH, host_path=host_path)
    pod.volumes.add(name="scratch", type=volume_pb2.VolumeSpec.VOLUME_TYPE_EMPTY_DIR)
    pod.mesos_spec.type = apachemesos_pb2.PodSpec.CONTAINER_TYPE_DOCKER
    pod.mesos_spec.docker_parameters.add(key="env", value="A=1")
    pod.mesos_spec.network_spec.type = apachemesos_pb2.PodSpec.NetworkSpec.NETWORK_TYPE_BRIDGE
    info = convert.task_config(pod).container

    assert (info.type, info.docker.image) == (mesos_pb2.ContainerInfo.DOCKER, "web:1")
    assert info.docker.network == mesos_pb2.ContainerInfo.DockerInfo.BRIDGE
    assert [(p.key, p.value) for p in info.docker.parameters] == [("env", "A=1")]
    assert [(v.host_path, v.container_path, v.mode) for v in info.volumes] == [
        ("/mnt/data", "/data", mesos_pb2.Volume.RO)
    ]


def test_an_image_alone_runs_in_the_mesos_containerizer() -> None:
    """An image without a type of container runs in the Mesos containerizer."""
    info = convert.task_config(a_pod(image="web:1")).container

    assert (info.type, info.mesos.image.docker.name) == (mesos_pb2.ContainerInfo.MESOS, "web:1")


def test_an_executor_from_own_words() -> None:
    """The executor has type, id, data and resources."""
    pod = a_pod()
    spec = pod.mesos_spec.executor_spec
    spec.type = apachemesos_pb2.PodSpec.ExecutorSpec.EXECUTOR_TYPE_CUSTOM
    spec.executor_id, spec.data, spec.resources.cpu = "e", b"d", 0.5
    executor = convert.task_config(pod).executor

    assert (executor.type, executor.executor_id.value, executor.data) == (mesos_pb2.ExecutorInfo.CUSTOM, "e", b"d")
    assert [(r.name, r.scalar.value) for r in executor.resources] == [("cpus", 0.5)]


def test_a_health_check_of_v1alpha() -> None:
    """The liveness check is the health check; the readiness check is ignored."""
    check = pod_pb2.HealthCheckSpec(enabled=True, type=pod_pb2.HealthCheckSpec.HEALTH_CHECK_TYPE_HTTP, interval_secs=7)
    check.http_check.port, check.http_check.path = 8080, "/health"
    task = convert.task_config(a_pod(liveness_check=check))

    assert (task.healthCheck.type, task.healthCheck.intervalSecs) == (task_pb2.HealthCheckConfig.HTTP, 7)
    assert (task.healthCheck.httpCheck.port, task.healthCheck.httpCheck.path) == (8080, "/health")
    assert not convert.task_config(a_pod(readiness_check=check)).HasField("healthCheck")


@pytest.mark.parametrize("form", ["http_check", "http_get"])
def test_a_health_check_of_a_named_port(form: str) -> None:
    """The two forms of v1alpha may name the port; the newer one does by the port's spec."""
    check = pod_pb2.HealthCheckSpec(enabled=True, type=pod_pb2.HealthCheckSpec.HEALTH_CHECK_TYPE_HTTP)
    if form == "http_check":
        check.http_check.port_name = "web"
    else:
        check.http_get.port_spec.name, check.http_get.path = "web", "/up"
    task = convert.task_config(a_pod(liveness_check=check))

    assert ("web", 0) == (task.healthCheck.httpCheck.portName, task.healthCheck.httpCheck.port)


@pytest.mark.parametrize("name", ["executor_spec", "network_spec"])
def test_types_that_mesos_does_not_have(name: str) -> None:
    """A number without a type in Mesos is refused with its field."""
    spec = stateless_pb2.JobSpec()
    mesos = spec.default_spec.mesos_spec
    mesos.type = mesos.CONTAINER_TYPE_DOCKER
    getattr(mesos, name).type = 99
    spec.default_spec.containers.add(image="web:1")

    with pytest.raises(InvalidArgument, match=rf"^mesos_spec\.{name}\.type is 99, want one of "):
        convert.job_config(spec)
