"""Mapping between Aurora's types and specs of jobs and pods."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.api import convert_v1_spec
from peloton.api.v1alpha.job.stateless.stateless_pb2 import JobSpec, JobSummary, SlaSpec
from peloton.api.v1alpha.pod.apachemesos.apachemesos_pb2 import PodSpec as MesosSpec
from peloton.api.v1alpha.pod.pod_pb2 import Constraint, NotConstraint, PodSpec
from services.aurorabridge.mapping import constraints, executor, identity, resources, tiers
from services.aurorabridge.mapping.job_spec import job_spec_of
from services.aurorabridge.mapping.task_config import ports_of, task_config_of
from services.aurorabridge.method import Refusal
from services.aurorabridge.thrift import api
from tests.unit.aurorabridge.scenario import KEY, NAME, THERMOS, task_config, thermos_data, update_request


def spec_of(thermos: executor.Thermos | None = None, **fields: Any) -> JobSpec:
    return job_spec_of(update_request(task_config(**fields)), "pool", thermos)


# -- identity ------------------------------------------------------------------------------------------------------


def test_a_job_has_the_name_and_the_labels_of_its_key() -> None:
    """The name, and the labels of the bridge, come from the job key."""
    spec = spec_of()

    assert (NAME, "ann", "ann", "pool", 3) == (
        spec.name,
        spec.owner,
        spec.owning_team,
        spec.respool_id.value,
        spec.instance_count,
    )
    assert {
        "aurora_bridge": "com.uber.peloton.internal.aurorabridge",
        "aurora_job_key_role": "ads",
        "aurora_job_key_environment": "prod",
        "aurora_job_key_name": "web",
    } == {label.key: label.value for label in spec.labels}
    assert identity.job_key(spec.name) == KEY


@pytest.mark.parametrize("name", ["", "ads", "ads/prod", "ads/prod/", "/prod/web", "a/b/c/d"])
def test_other_names_are_no_job_keys(name: str) -> None:
    """A name has exactly three parts."""
    with pytest.raises(Refusal, match="invalid job name"):
        identity.job_key(name)


@pytest.mark.parametrize(
    "key",
    [
        None,
        api.JobKey(),
        api.JobKey("a", "\ud800", "b"),
        api.JobKey(role="ads", environment="", name="web"),
        api.JobKey("ads", "p/q", "web"),
    ],
)
def test_keys_that_could_not_be_read_back_are_refused(key: Any) -> None:
    """A key without a part, or with a slash in one, is refused."""
    with pytest.raises(Refusal, match="invalid job key"):
        identity.job_name(key)


def test_pods_have_the_labels_of_the_bridge_and_of_the_metadata() -> None:
    """Metadata are labels of pods, in order of their keys, and are read back."""
    metadata = [api.Metadata(key="b", value="2"), api.Metadata(key="a", value="1")]
    pod = spec_of(THERMOS, metadata=metadata).default_spec

    assert [
        ("aurora_bridge_pod", "com.uber.peloton.internal.aurorabridge_pod"),
        ("aurora_job_key", NAME),
        ("org.apache.aurora.metadata.a", "1"),
        ("org.apache.aurora.metadata.b", "2"),
    ] == [(label.key, label.value) for label in pod.labels]
    assert sorted(metadata, key=lambda one: str(one.key)) == identity.metadata_of(pod.labels)


# -- tiers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tier", "is_revocable", "answered"),
    [
        ("preemptible", False, "preemptible"),
        ("revocable", True, "revocable"),
        ("preferred", False, "preemptible"),
        ("gold", False, "preemptible"),
        (None, False, "preemptible"),
    ],
)
def test_tiers(tier: str | None, is_revocable: bool, answered: str) -> None:
    """Tiers decide whether jobs are preemptible and revocable, and are read back."""
    spec = spec_of(tier=tier, priority=7)

    assert (7, is_revocable, is_revocable) == (spec.sla.priority, spec.sla.preemptible, spec.sla.revocable)
    assert is_revocable is spec.default_spec.revocable
    assert (answered, 7) == (lambda task: (task.tier, task.priority))(task_config_of(spec.default_spec, spec))


@pytest.mark.parametrize(
    ("preemptible", "revocable", "tier"),
    [
        (False, False, "preemptible"),
        (True, False, "preemptible"),
        (False, True, "preemptible"),
        (True, True, "revocable"),
    ],
)
def test_tiers_outward(preemptible: bool, revocable: bool, tier: str) -> None:
    """A job that is preemptible and revocable is of the tier revocable, and no other job is."""
    assert tier == tiers.tier_of(SlaSpec(preemptible=preemptible, revocable=revocable))


@pytest.mark.parametrize(("instances", "unavailable"), [(0, 1), (1, 1), (10, 1), (19, 1), (20, 2), (999, 99)])
def test_a_tenth_of_the_instances_may_be_unavailable(instances: int, unavailable: int) -> None:
    """The SLA lets a tenth of the instances, rounded down, be unavailable, and at least one."""
    assert unavailable == tiers.sla_spec(task_config(), instances).maximum_unavailable_instances


# -- constraints ---------------------------------------------------------------------------------------------------


def limit(name: str | None, count: int | None) -> Any:
    return api.Constraint(name=name, constraint=api.TaskConstraint(limit=api.LimitConstraint(limit=count)))


def value(name: str, *values: str, negated: bool = False) -> Any:
    one = api.ValueConstraint(negated=negated, values=list(values))
    return api.Constraint(name=name, constraint=api.TaskConstraint(value=one))


def drawn(constraint: Constraint) -> str:
    """Return a constraint as text: ``pod key=value < 2``, with & and | for lists."""
    label = constraint.label_constraint
    kind, sign = ("pod", "<") if label.kind == 1 else ("host", "==" if label.condition == 2 else "?")
    if constraint.type == Constraint.CONSTRAINT_TYPE_AND:
        return f"({' & '.join(map(drawn, constraint.and_constraint.constraints))})"
    if constraint.type == Constraint.CONSTRAINT_TYPE_OR:
        return f"({' | '.join(map(drawn, constraint.or_constraint.constraints))})"
    return f"{kind} {label.label.key}={label.label.value} {sign} {label.requirement}"


LIMIT_2 = "pod aurora_job_key=ads/prod/web < 2"
CONSTRAINTS = {
    "none": ([], ""),
    "a limit of pods on a host": ([limit("host", 2)], LIMIT_2),
    "a value": ([value("rack", "a")], "host rack=a == 1"),
    "values": ([value("rack", "b", "a")], "(host rack=a == 1 | host rack=b == 1)"),
    "several": ([value("rack", "a"), limit("host", 2)], f"({LIMIT_2} & host rack=a == 1)"),
    "several with values": (
        [value("zone", "x"), value("rack", "b", "a")],
        "((host rack=a == 1 | host rack=b == 1) & host zone=x == 1)",
    ),
}


@pytest.mark.parametrize(("given", "text"), CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_constraints(given: list[Any], text: str) -> None:
    """Constraints are made and read back; the order of their names and values is not kept."""
    pod = spec_of(constraints=given).default_spec

    assert text == (drawn(pod.constraint) if pod.HasField("constraint") else "")
    assert executor.normalize(api.TaskConfig(constraints=given)).constraints == (
        constraints.task_constraints(pod.constraint) or None
    )


@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        (limit("rack", 2), "constraint rack: only host limit constraints supported"),
        (limit("host", 0), "constraint host: the limit is 0, want at least 1"),
        (value("rack", "a", negated=True), "constraint rack: negated value constraints not supported"),
        (value("rack"), "constraint rack: no value is set"),
        (api.Constraint(name="rack"), "constraint rack: neither a value nor a limit is set"),
        (api.Constraint(name="rack", constraint=api.TaskConstraint()), "constraint rack: neither"),
    ],
)
def test_constraints_that_are_refused(constraint: Any, text: str) -> None:
    """Refusals name the constraint."""
    with pytest.raises(Refusal, match=text):
        spec_of(constraints=[constraint])


def test_a_constraint_without_counterpart_in_aurora_is_refused() -> None:
    """A job of the bridge that a client of v1alpha has patched may have one."""
    inner = Constraint(type=Constraint.CONSTRAINT_TYPE_LABEL)
    negated = Constraint(type=Constraint.CONSTRAINT_TYPE_NOT, not_constraint=NotConstraint(constraint=inner))

    with pytest.raises(Refusal, match="no counterpart in Aurora"):
        constraints.task_constraints(negated)


# -- resources -----------------------------------------------------------------------------------------------------


def test_resources_and_ports() -> None:
    """Resources come from the list of the task, and are read back in the order of the original."""
    given = [
        api.Resource(namedPort="http"),
        api.Resource(numGpus=2),
        api.Resource(diskMb=32),
        api.Resource(ramMb=64),
        api.Resource(numCpus=0.5),
        api.Resource(namedPort="admin"),
    ]
    spec = spec_of(THERMOS, resources=given)
    only = spec.default_spec.containers[0]
    task = task_config_of(spec.default_spec, spec)

    assert (0.5, 64, 32, 2) == (
        only.resource.cpu_limit,
        only.resource.mem_limit_mb,
        only.resource.disk_limit_mb,
        only.resource.gpu_limit,
    )
    assert [("admin", 0, ""), ("http", 0, "")] == [(port.name, port.value, port.env_name) for port in only.ports]
    assert [*reversed(given[1:5]), given[5], given[0]] == task.resources
    assert (0.5, 64, 32, ["admin", "http"]) == (task.numCpus, task.ramMb, task.diskMb, task.requestedPorts)
    assert {"admin": 0, "http": 0} == ports_of(spec.default_spec)


def test_fields_of_older_clients() -> None:
    """Fields count where the list leaves a kind out; ports are joined."""
    listed = [api.Resource(ramMb=64), api.Resource(namedPort="http")]
    spec = spec_of(resources=listed, numCpus=0.25, ramMb=1, diskMb=8, requestedPorts=["admin", "http"])
    only = spec.default_spec.containers[0]

    assert (0.25, 64, 8) == (only.resource.cpu_limit, only.resource.mem_limit_mb, only.resource.disk_limit_mb)
    assert [("admin", "PORT_ADMIN"), ("http", "PORT_HTTP")] == [(port.name, port.env_name) for port in only.ports]


GPUS = {
    "none": ({}, False, 0),
    "a resource": ({"resources": [api.Resource(numGpus=2)]}, True, 2),
    "metadata": ({"metadata": [api.Metadata(key="udeploy_num_gpus", value="0.5")]}, True, 0.5),
    "metadata before a resource": (
        {"resources": [api.Resource(numGpus=2)], "metadata": [api.Metadata(key="udeploy_num_gpus", value="1")]},
        True,
        1,
    ),
}


@pytest.mark.parametrize(("fields", "needs", "gpus"), GPUS.values(), ids=GPUS)
def test_gpus(fields: dict[str, Any], needs: bool, gpus: float) -> None:
    """Metadata may ask for gpus, and decide over the list."""
    task = task_config(**fields)

    assert (needs, gpus) == (resources.needs_gpu(task), resources.resource_spec(task).gpu_limit)


@pytest.mark.parametrize("text", ["", "many", "-1", "nan", "inf"])
def test_gpus_that_are_no_number_are_refused(text: str) -> None:
    """Metadata that ask for gpus without a number are refused."""
    with pytest.raises(Refusal, match="udeploy_num_gpus"):
        spec_of(metadata=[api.Metadata(key="udeploy_num_gpus", value=text)])


# -- containers ----------------------------------------------------------------------------------------------------


def mesos(image: Any = None, volumes: Any = None) -> Any:
    return api.Container(mesos=api.MesosContainer(image=image, volumes=volumes))


IMAGE = api.Image(docker=api.DockerImage(name="hub:5000/ads/web", tag="1.2"))
VOLUMES = [
    api.Volume(containerPath="/logs", hostPath="/var/log", mode=api.Mode.RW),
    api.Volume(containerPath="/old", hostPath="/var/log", mode=api.Mode.RO),
    api.Volume(containerPath="/etc/hosts", hostPath="/etc/hosts", mode=api.Mode.RO),
]
DOCKER = api.DockerContainer(image="ads/web:1", parameters=[api.DockerParameter(name="env", value="A=1")])
CONTAINERS = {
    "none": (None, "", MesosSpec.CONTAINER_TYPE_INVALID),
    "of Mesos": (mesos(volumes=[]), "", MesosSpec.CONTAINER_TYPE_MESOS),
    "of Mesos with an image": (mesos(IMAGE, []), "hub:5000/ads/web:1.2", MesosSpec.CONTAINER_TYPE_MESOS),
    "of Mesos with volumes": (mesos(IMAGE, VOLUMES), "hub:5000/ads/web:1.2", MesosSpec.CONTAINER_TYPE_MESOS),
    "of Docker": (api.Container(docker=DOCKER), "ads/web:1", MesosSpec.CONTAINER_TYPE_DOCKER),
}


@pytest.mark.parametrize("thermos", [None, THERMOS])
@pytest.mark.parametrize(("container", "image", "type"), CONTAINERS.values(), ids=CONTAINERS)
def test_containers(container: Any, image: str, type: int, thermos: executor.Thermos | None) -> None:
    """Containers are made and read back, also after a round trip through storage."""
    spec = spec_of(thermos, container=container)
    pod = spec.default_spec
    stored = convert_v1_spec.job_spec(convert_v1_spec.job_config(spec), spec.SerializeToString())

    assert (image, type) == (pod.containers[0].image, pod.mesos_spec.type)
    assert [container, container] == [task_config_of(one.default_spec, one).container for one in (spec, stored)]


def test_containers_of_docker_use_the_network_of_the_host() -> None:
    """Aurora's pods of Docker have the ports of their hosts."""
    network = spec_of(container=api.Container(docker=DOCKER)).default_spec.mesos_spec.network_spec

    assert network.type == MesosSpec.NetworkSpec.NETWORK_TYPE_HOST


def test_a_task_without_a_container_has_no_mesos_spec() -> None:
    """A process without an image needs none of the fields of Mesos."""
    assert not spec_of().default_spec.HasField("mesos_spec")


@pytest.mark.parametrize(
    ("container", "text"),
    [
        (mesos(api.Image(appc=api.AppcImage(name="a"))), "invalid mesos image type appc"),
        (mesos(api.Image()), "invalid mesos image type none"),
        (api.Container(), "neither of mesos nor of docker"),
    ],
)
def test_containers_that_are_refused(container: Any, text: str) -> None:
    """Images of other kinds and empty unions are refused."""
    with pytest.raises(Refusal, match=text):
        spec_of(container=container)


def test_an_image_without_a_tag_has_no_words_in_aurora() -> None:
    """A job patched by a client of v1alpha may have such an image."""
    spec = spec_of(container=mesos(IMAGE))
    spec.default_spec.containers[0].image = "web"

    with pytest.raises(Refusal, match="it has no tag"):
        task_config_of(spec.default_spec, spec)


# -- executor ------------------------------------------------------------------------------------------------------


def test_thermos_gets_the_task_as_its_data() -> None:
    """The executor is fetched, started by the pod's command, and finds the whole task in its data."""
    uri = api.MesosFetcherURI(value="hdfs://a", extract=True, cache=False)
    spec = spec_of(THERMOS, mesosFetcherUris=[uri], contactEmail="ann@example.org")
    pod = spec.default_spec
    wanted = pod.mesos_spec.executor_spec
    sent = executor.decode_task(wanted.data)

    assert "${MESOS_SANDBOX=.}/thermos_executor.pex --nosetuid" == pod.containers[0].entrypoint.value
    assert pod.mesos_spec.shell
    assert [
        ("/opt/bin/thermos_executor.pex", True, True),
        ("/opt/root.tar.gz", True, True),
        ("hdfs://a", False, True),
    ] == [(one.value, one.executable, one.extract) for one in pod.mesos_spec.uris]
    assert (MesosSpec.ExecutorSpec.EXECUTOR_TYPE_CUSTOM, "PLACEHOLDER") == (wanted.type, wanted.executor_id)
    assert (0.25, 128) == (wanted.resources.cpu, wanted.resources.mem_mb)
    assert (KEY, "ann@example.org", "AuroraExecutor") == (sent.job, sent.contactEmail, sent.executorConfig.name)
    assert json.loads(thermos_data()) == json.loads(sent.executorConfig.data)
    assert [uri] == task_config_of(pod, spec).mesosFetcherUris


@pytest.mark.parametrize("thermos", [None, THERMOS])
def test_the_configuration_of_the_executor_is_read_back(thermos: executor.Thermos | None) -> None:
    """The data, or a variable without Thermos, keep what the client gave, also through storage."""
    spec = spec_of(thermos)
    stored = convert_v1_spec.job_spec(convert_v1_spec.job_config(spec))
    for one in (spec, stored):
        read = task_config_of(one.default_spec, spec).executorConfig

        assert ("AuroraExecutor", json.loads(thermos_data())) == (read.name, json.loads(read.data))


def test_a_variable_that_no_process_could_have_is_refused() -> None:
    """Linux bounds the size of a variable; data for Thermos have no such bound."""
    config = api.ExecutorConfig(name="AuroraExecutor", data=thermos_data("true " + "x" * 100_000))

    assert spec_of(THERMOS, executorConfig=config)
    with pytest.raises(Refusal, match="at most 100000 are allowed"):
        spec_of(executorConfig=config)


def test_a_variable_that_others_wrote_is_refused() -> None:
    """A job patched by a client of v1alpha may have one."""
    spec = spec_of()
    spec.default_spec.containers[0].environment[0].value = "[]"

    with pytest.raises(Refusal, match="AURORA_EXECUTOR_CONFIG"):
        task_config_of(spec.default_spec, spec)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "data",
    [
        b"a",
        b"\x0b\x00\x1e\x7f\xff\xff\xff",
        b"\x0e\x00\x14\x0c\x7f\xff\xff\xff",
        b"\x0b\x00\x1e\x00\x00\x00\x01\xff\x00",
    ],
)
def test_data_of_others_are_refused(data: bytes) -> None:
    """A client of v1alpha may have stored anything; the decoder would loop for hours over sizes that are claimed."""
    spec = spec_of(THERMOS)
    spec.default_spec.mesos_spec.executor_spec.data = data

    with pytest.raises(Refusal, match="is no task of Aurora"):
        task_config_of(spec.default_spec, spec)


COMMANDS = {
    "plain": ("sleep 100", "sleep 100"),
    "ports": ("serve {{thermos.ports[http-x]}}", "serve ${PORT_HTTP_X}"),
    "instance": ("run {{mesos.instance}} {{thermos.task_id}}", "run ${PELOTON_INSTANCE_ID} ${PELOTON_TASK_ID}"),
    "other names": ("echo {{profile.x}}", "echo {{profile.x}}"),
}


@pytest.mark.parametrize(("given", "run"), COMMANDS.values(), ids=COMMANDS)
def test_without_thermos_pods_run_the_first_process(given: str, run: str) -> None:
    """The command line of the first process runs in a shell, with variables in place of Thermos's names."""
    pod = spec_of(command=given, container=mesos()).default_spec

    assert (run, True) == (pod.containers[0].entrypoint.value, pod.mesos_spec.shell)
    assert not pod.mesos_spec.HasField("executor_spec")


def test_without_an_executor_an_image_runs_its_own_command() -> None:
    """An empty entry point leaves the command to the image."""
    pod = spec_of(executorConfig=None, container=mesos(IMAGE)).default_spec

    assert pod.containers[0].HasField("entrypoint")
    assert not pod.containers[0].entrypoint.value


@pytest.mark.parametrize("data", [None, "", "{", "[]", '{"task":{}}', '{"task":{"processes":[]}}', "[" * 100_000])
def test_data_without_a_command_line_is_refused(data: str | None) -> None:
    """The refusal names the path at which the command line is expected."""
    with pytest.raises(Refusal, match=r"task\.processes\[0\]\.cmdline|is not JSON"):
        spec_of(executorConfig=api.ExecutorConfig(name="AuroraExecutor", data=data))


def test_a_task_without_executor_and_image_is_refused() -> None:
    """A task must say what it runs."""
    with pytest.raises(Refusal, match="neither an executorConfig nor an image"):
        spec_of(executorConfig=None)


@pytest.mark.parametrize(
    ("fields", "text"), [({"taskConfig": None}, "no taskConfig"), ({"instanceCount": -1}, "instanceCount is -1")]
)
def test_requests_that_are_refused(fields: dict[str, Any], text: str) -> None:
    """A request needs a task and a possible number of instances."""
    request = update_request()
    for name, content in fields.items():
        setattr(request, name, content)

    with pytest.raises(Refusal, match=text):
        job_spec_of(request, "pool", None)


@pytest.mark.parametrize("thermos", [None, THERMOS])
@pytest.mark.parametrize(
    "fields",
    [
        {"owner": api.Identity(user="\ud800")},
        {"executorConfig": api.ExecutorConfig(name="\ud800", data=thermos_data())},
        {"metadata": [api.Metadata(key="\ud800", value="1")]},
        {"container": mesos(api.Image(docker=api.DockerImage(name="\ud800", tag="1")))},
    ],
)
def test_text_that_is_not_unicode_is_refused(fields: dict[str, Any], thermos: executor.Thermos | None) -> None:
    """JSON can have half of a character."""
    with pytest.raises(Refusal, match="not Unicode"):
        spec_of(thermos, **fields)


# -- both directions -----------------------------------------------------------------------------------------------


def test_a_summary_of_a_job_suffices() -> None:
    """Reads of many jobs have no specs of jobs, only summaries."""
    spec = spec_of(tier="revocable")
    summary = JobSummary(name=spec.name, owner=spec.owner, sla=spec.sla)

    assert task_config_of(spec.default_spec, spec) == task_config_of(spec.default_spec, summary)


def test_a_pod_without_containers_is_a_task_without_resources() -> None:
    """An empty spec is an empty task."""
    task = task_config_of(PodSpec(), JobSpec(name=NAME))

    assert (0, [], None) == (task.numCpus, task.resources, task.container)


NAMES = st.text("abc-", min_size=1, max_size=4)
METADATA = st.builds(api.Metadata, key=NAMES, value=NAMES)
CONSTRAINT = st.builds(value, NAMES, NAMES, NAMES) | st.builds(limit, st.just("host"), st.integers(1, 9))
PORTS = st.builds(lambda name: api.Resource(namedPort=name), NAMES)
URIS = st.builds(api.MesosFetcherURI, value=NAMES, extract=st.booleans())


@st.composite
def tasks(draw: st.DrawFn) -> Any:
    amounts = [api.Resource(numCpus=draw(st.floats(0.1, 9))), api.Resource(ramMb=draw(st.integers(1, 99)))]
    return task_config(
        metadata=draw(st.lists(METADATA, max_size=4)),
        constraints=draw(st.lists(CONSTRAINT, max_size=3, unique_by=lambda one: str(one.name))),
        resources=amounts + draw(st.lists(PORTS, max_size=3)),
        mesosFetcherUris=draw(st.lists(URIS, max_size=3, unique_by=lambda one: str(one.value))),
        taskLinks=draw(st.dictionaries(NAMES, NAMES, max_size=3)),
        requestedPorts=draw(st.lists(NAMES, max_size=3, unique=True)),
        tier=draw(st.sampled_from(["revocable", "preferred"])),
    )


def shuffle(task: Any, seed: int) -> Any:
    """Return an equal task with all of its sets, and the keys of its JSON, in another order."""
    order = random.Random(seed)

    def mix(members: Any) -> Any:
        return order.sample(list(members), len(members))

    data = json.loads(task.executorConfig.data)
    made = task_config(
        **{name: mix(getattr(task, name)) for name in ("metadata", "resources", "mesosFetcherUris", "requestedPorts")},
        taskLinks=dict(mix(task.taskLinks.items())),
        constraints=mix(task.constraints),
        tier=task.tier,
    )
    made.executorConfig = api.ExecutorConfig(
        name=task.executorConfig.name, data=json.dumps(dict(mix(data.items())), indent=2)
    )
    return made


@settings(deadline=None)
@given(tasks(), st.integers(0, 2**32))
def test_equal_tasks_in_another_order_have_equal_specs(task: Any, seed: int) -> None:
    """The specs are the same byte by byte, so that an update to an equal configuration restarts nothing."""
    for thermos in (None, THERMOS):
        one, other = (
            job_spec_of(update_request(each), "pool", thermos).SerializeToString(deterministic=True)
            for each in (task, shuffle(task, seed))
        )

        assert one == other


@settings(deadline=None)
@given(tasks())
def test_what_is_read_back_makes_the_same_spec(task: Any) -> None:
    """A client that reads a task and starts an update with it changes nothing; Thermos gets new data only once."""
    made = job_spec_of(update_request(task), "pool", None)
    read = task_config_of(made.default_spec, made)

    assert made == job_spec_of(update_request(read), "pool", None)
