"""Conversion of users' YAML to messages and back."""

from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from peloton.api import yaml_config
from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.respell import squash
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.job.job_pb2 import JobConfig
from peloton.api.v0.peloton_pb2 import Secret
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.yaml_config import NODE_COUNT_MAX, ConfigError, MessageReader, compose, dump_message, load_message

EXAMPLES = Path(__file__).parent / "examples"


def error_of(text: str) -> str:
    with pytest.raises(ConfigError) as error:
        load_message(text, JobConfig, name="job.yaml")
    return str(error.value)


def test_a_batch_job() -> None:
    """A job file with lower-case keys and enum numbers is read completely, Mesos messages and overrides included."""
    job = load_message(EXAMPLES / "hello_world.yaml", JobConfig)
    task = job.defaultConfig
    assert (job.name, job.type, job.instanceCount, job.sla.minimumRunningInstances) == ("HelloWorld", 0, 10, 2)
    assert list(job.ldapGroups) == ["infra", "oncall"]
    assert (task.resource.cpuLimit, task.resource.fdLimit) == (0.5, 10)
    assert task.container.docker.network == mesos_pb2.ContainerInfo.DockerInfo.BRIDGE
    assert task.container.volumes[0].mode == mesos_pb2.Volume.RO
    variables = [(variable.name, variable.value) for variable in task.command.environment.variables]
    assert variables == [("GREETER", "instance"), ("PORT_HINT", "8080")]
    ports = [(port.name, port.value, port.envName) for port in task.ports]
    assert ports == [("http", 0, "HTTP_PORT"), ("admin", 31001, "ADMIN_PORT")]
    assert task.constraint.labelConstraint.kind == task_pb2.LabelConstraint.HOST
    assert sorted(job.instanceConfig) == [0, 3]
    assert job.instanceConfig[3].resource.cpuLimit == 1.0


def test_a_resource_pool() -> None:
    """Enum names in lower case and numbers with an exponent are valid."""
    pool = load_message(EXAMPLES / "pool.yaml", respool_pb2.ResourcePoolConfig)
    assert pool.resources[0].type == respool_pb2.ELASTIC
    assert (pool.resources[1].reservation, pool.resources[1].limit) == (10000.0, 25000.0)
    assert pool.policy == respool_pb2.PriorityFIFO
    assert pool.slackLimit.maxPercent == 20.0


def test_a_stateless_job() -> None:
    """The v1alpha spec, whose fields have underscores, is read by the same keys without separators."""
    job = load_message(EXAMPLES / "stateless.yaml", stateless_pb2.JobSpec)
    assert job.default_spec.kill_grace_period_seconds == 30
    assert list(job.default_spec.containers[0].entrypoint.arguments) == ["--port", "8080"]
    assert job.instance_spec[2].containers[0].image.endswith(":8")


@pytest.mark.parametrize("key", ["instancecount", "instanceCount", "instance_count", "INSTANCECOUNT", "Instance_Count"])
def test_spellings_of_a_key(key: str) -> None:
    """Case and underscores of a key are ignored."""
    assert load_message(f"{key}: 7", JobConfig).instanceCount == 7


@pytest.mark.parametrize("value", ["1", "SERVICE", "service", "Service", "'service'"])
def test_spellings_of_an_enum(value: str) -> None:
    """An enum is valid as a number or as a name in any case."""
    assert load_message(f"type: {value}", JobConfig).type == job_pb2.SERVICE


VALUES = {
    "text that looks like a number": ("name: 0123", JobConfig(name="0123")),
    "text that looks like a boolean": ("name: yes", JobConfig(name="yes")),
    "nothing means not set": ("name: ~\nsla:\nlabels:\n", JobConfig()),
    "an empty message is set": ("sla: {}", JobConfig(sla=job_pb2.SlaConfig())),
    "yes is true": ("sla: {preemptible: yes}", JobConfig(sla=job_pb2.SlaConfig(preemptible=True))),
    "off is false": ("sla: {preemptible: off}", JobConfig(sla=job_pb2.SlaConfig())),
    "a whole number written as a fraction": ("instancecount: 10.0", JobConfig(instanceCount=10)),
    "the largest number": ("instancecount: 4294967295", JobConfig(instanceCount=2**32 - 1)),
    "an instance without a difference": (
        "instanceconfig: {4: }",
        JobConfig(instanceConfig={4: task_pb2.TaskConfig()}),
    ),
    "a duration as a number": (
        "defaultconfig: {executor: {executorid: {value: e}, shutdowngraceperiod: 5000}}",
        JobConfig(
            defaultConfig=task_pb2.TaskConfig(
                executor=mesos_pb2.ExecutorInfo(
                    executor_id=mesos_pb2.ExecutorID(value="e"),
                    shutdown_grace_period=mesos_pb2.DurationInfo(nanoseconds=5000),
                )
            )
        ),
    ),
    "an alias": (
        "instanceconfig: {1: &one {name: a}, 2: *one}",
        JobConfig(instanceConfig={1: task_pb2.TaskConfig(name="a"), 2: task_pb2.TaskConfig(name="a")}),
    ),
    "a merge key gives way to what is written out": (
        "instanceconfig: {1: &one {name: a, controller: true}, 2: {<<: *one, name: b}}",
        JobConfig(
            instanceConfig={
                1: task_pb2.TaskConfig(name="a", controller=True),
                2: task_pb2.TaskConfig(name="b", controller=True),
            }
        ),
    ),
}


@pytest.mark.parametrize("case", VALUES)
def test_values(case: str) -> None:
    """Values are converted to the type of their field."""
    text, expected = VALUES[case]
    assert load_message(text, JobConfig) == expected


BYTES = {"text": "data: hello", "base64": "data: !!binary aGVsbG8=", "numbers": "data: [104, 101, 108, 108, 111]"}


@pytest.mark.parametrize("case", BYTES)
def test_bytes(case: str) -> None:
    """Bytes are valid as text, base64 or a list of numbers."""
    assert load_message(BYTES[case], Secret.Value).data == b"hello"


ERRORS = {
    "unknown key": (
        "name: a\ndefaultconfig:\n  resource:\n    cpulimitt: 1\n",
        "job.yaml:4:5: defaultconfig.resource: unknown key 'cpulimitt' (did you mean 'cpulimit'?)",
    ),
    "unknown key in the caller's spelling": (
        "defaultConfig: {resource: {cpuLimitt: 1}}",
        "job.yaml:1:28: defaultConfig.resource: unknown key 'cpuLimitt' (did you mean 'cpuLimit'?)",
    ),
    "unknown key like no other": ("xyz: 1", "job.yaml:1:1: unknown key 'xyz'"),
    "unknown key in a list": (
        "defaultconfig:\n  ports:\n    - {name: a}\n    - {nam: b}\n",
        "job.yaml:4:8: defaultconfig.ports[1]: unknown key 'nam' (did you mean 'name'?)",
    ),
    "unknown key in a map": (
        "instanceconfig:\n  3:\n    comand: {value: x}\n",
        "job.yaml:3:5: instanceconfig[3]: unknown key 'comand' (did you mean 'command'?)",
    ),
    "duplicate key": ("name: a\nname: b\n", "job.yaml:2:1: duplicate key 'name'"),
    "duplicate key in another spelling": (
        "instancecount: 1\ninstanceCount: 2\n",
        "job.yaml:2:1: duplicate key 'instanceCount'",
    ),
    "duplicate instance": (
        "instanceconfig:\n  1: {name: a}\n  0x1: {name: b}\n",
        "job.yaml:3:3: instanceconfig: duplicate key '1'",
    ),
    "negative": (
        "instancecount: -1",
        "job.yaml:1:16: instancecount: -1 is out of range, expected 0 to 4294967295",
    ),
    "too large": (
        "instancecount: 4294967296",
        "job.yaml:1:16: instancecount: 4294967296 is out of range, expected 0 to 4294967295",
    ),
    "negative instance": (
        "instanceconfig: {-2: {}}",
        "job.yaml:1:18: instanceconfig: -2 is out of range, expected 0 to 4294967295",
    ),
    "text for a number": (
        "instancecount: ten",
        "job.yaml:1:16: instancecount: expected a whole number, not text ('ten')",
    ),
    "a fraction": (
        "instancecount: 1.5",
        "job.yaml:1:16: instancecount: expected a whole number, not a fraction ('1.5')",
    ),
    "a number for a boolean": (
        "sla: {preemptible: 1}",
        "job.yaml:1:20: sla.preemptible: expected true or false, not a number ('1')",
    ),
    "not a number": (
        "defaultconfig: {resource: {cpulimit: .nan}}",
        "job.yaml:1:38: defaultconfig.resource.cpulimit: expected a number, not infinity or NaN ('.nan')",
    ),
    "a list for a message": ("sla: [1]", "job.yaml:1:6: sla: expected a mapping (SlaConfig), not a list"),
    "text for a message": ("sla: high", "job.yaml:1:6: sla: expected a mapping (SlaConfig), not text ('high')"),
    "a message for a list": (
        "labels: {key: a}",
        "job.yaml:1:9: labels: expected a list of Label, not a mapping",
    ),
    "a list for a map": (
        "instanceconfig: [{name: a}]",
        "job.yaml:1:17: instanceconfig: expected a mapping from a whole number to TaskConfig, not a list",
    ),
    "a mapping for text": ("name: {a: b}", "job.yaml:1:7: name: expected text, not a mapping"),
    "nothing in a list": ("ldapgroups: [a, ~]", "job.yaml:1:17: ldapgroups[1]: expected text, not nothing"),
    "unknown enum name": (
        "type: sevice",
        "job.yaml:1:7: type: unknown JobType 'sevice' (did you mean 'SERVICE'?)",
    ),
    "unknown enum number": (
        "type: 7",
        "job.yaml:1:7: type: unknown JobType '7', expected BATCH (0), SERVICE (1), DAEMON (2), EXTERNAL (100)",
    ),
    "enum number that no enum can have": (
        "type: 9999999999",
        "job.yaml:1:7: type: unknown JobType '9999999999', expected BATCH (0), SERVICE (1), DAEMON (2), EXTERNAL (100)",
    ),
    "missing key of a Mesos message": (
        "defaultconfig:\n  container:\n    docker: {image: a}\n",
        "job.yaml:3:5: defaultconfig.container: missing key 'type'",
    ),
    "a list as the whole file": ("- a", "job.yaml:1:1: expected a mapping (JobConfig), not a list"),
    "an empty file": ("# nothing\n", "job.yaml:1:1: the file is empty"),
    "a list as a key": ("[a]: b", "job.yaml:1:1: expected a key, not a list"),
    "nothing to merge": ("<<: 3", "job.yaml:1:5: expected a mapping to merge, not a number ('3')"),
    "brackets without end": ("[" * 100_000, "job.yaml:1:65: nested deeper than 64"),
    "an alias of itself": (
        "defaultconfig: {constraint: &c {andconstraint: {constraints: [*c]}}}",
        "nested deeper than 64",
    ),
    "a merge of itself": ("sla: &s {<<: *s}", "nested deeper than 64"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case: str) -> None:
    """The error has line, column and the path of keys."""
    text, expected = ERRORS[case]
    error = error_of(text)
    assert error == expected if expected.startswith("job.yaml") else error.endswith(expected)


MALFORMED = {
    "open bracket": ("name: a\nlabels: [\n", 3),
    "tab": ("name: a\nsla:\n\tpriority: 1\n", 3),
    "two documents": ("name: a\n---\nname: b\n", 2),
    "unknown alias": ("name: a\nsla: *nowhere\n", 2),
    "control character": ("name: a\x00\n", 1),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_yaml(case: str) -> None:
    """Malformed YAML is refused with its line."""
    text, line = MALFORMED[case]
    assert error_of(text).startswith(f"job.yaml:{line}:")
    assert "not YAML" in error_of(text)


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are refused with the file and the line."""
    path = tmp_path / "job.yaml"
    path.write_bytes(b"name: a\nowner: \xff\n")
    with pytest.raises(ConfigError) as error:
        load_message(path, JobConfig)
    assert str(error.value) == f"{path}:2:1: not UTF-8 text"


def test_a_file_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader stops at the size of the largest configuration."""
    monkeypatch.setattr(yaml_config, "BYTES_MAX", 2 << 20)
    with pytest.raises(ConfigError, match=r"^/dev/zero:1:1: more than 2 MiB, too large for a configuration$"):
        load_message(Path("/dev/zero"), JobConfig)


def test_aliases_cannot_grow_without_end() -> None:
    """The number of values has a bound, even if few lines define them."""
    reader = MessageReader("job.yaml")
    reader.node_count = NODE_COUNT_MAX
    with pytest.raises(ConfigError, match="more than"):
        reader.read_message(compose("name: a", "job.yaml"), JobConfig(), where="", depth=0)


@pytest.mark.parametrize(
    ("name", "message_class"),
    [
        ("hello_world.yaml", JobConfig),
        ("pool.yaml", respool_pb2.ResourcePoolConfig),
        ("stateless.yaml", stateless_pb2.JobSpec),
    ],
)
def test_what_is_dumped_can_be_loaded(name: str, message_class: type[Message]) -> None:
    """The text of a message loads as the same message."""
    message = load_message(EXAMPLES / name, message_class)
    assert load_message(dump_message(message), message_class) == message


def test_dump() -> None:
    """Names are the contract's, enums are names, defaults are omitted, and strings stay strings."""
    job = JobConfig(
        name="123",
        type=job_pb2.SERVICE,
        sla=job_pb2.SlaConfig(preemptible=True),
        instanceConfig={10: task_pb2.TaskConfig(name="b"), 2: task_pb2.TaskConfig()},
    )
    expected = "name: '123'\ntype: SERVICE\nsla:\n  preemptible: true\ninstanceConfig:\n  2: {}\n  10:\n    name: b\n"
    assert dump_message(job) == expected


def test_no_two_fields_of_a_message_have_the_same_key() -> None:
    """Every field of every configuration message has a unique key, even without cases and underscores."""
    todo: list[Descriptor] = [
        message.DESCRIPTOR for message in (JobConfig, respool_pb2.ResourcePoolConfig, stateless_pb2.JobSpec)
    ]
    todo += host_svc_pb2.DESCRIPTOR.message_types_by_name.values()
    seen: set[str] = set()
    while todo:
        descriptor = todo.pop()
        if descriptor.full_name in seen:
            continue
        seen.add(descriptor.full_name)
        assert len({squash(field.name) for field in descriptor.fields}) == len(descriptor.fields)
        todo += [field.message_type for field in descriptor.fields if field.message_type]
    assert len(seen) > 50
