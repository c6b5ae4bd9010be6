"""The configuration of one instance: the override merged into the default."""

import pytest

from peloton.api.merge import effective_task_config
from peloton.api.v0.job.job_pb2 import JobConfig
from peloton.api.v0.task.task_pb2 import TaskConfig
from peloton.api.yaml_config import load_message

SECRET = "{mode: RO, containerpath: /s, source: {type: secret, secret: {type: value, value: {data: id}}}}"
PLAIN = "{mode: RW, containerpath: /d, hostpath: /d}"

# case: default, override, expected
MERGES = {
    "a boolean of the override wins": ("{revocable: false}", "{revocable: true}", "{revocable: true}"),
    "a boolean wins even when false": ("{revocable: true}", "{revocable: false, name: a}", "{name: a}"),
    "a boolean wins even when never written": (
        "{revocable: true, controller: true}",
        "{name: a}",
        "{name: a}",
    ),
    "a number counts": ("{killgraceperiodseconds: 5}", "{killgraceperiodseconds: 9}", "{killgraceperiodseconds: 9}"),
    "zero does not count": (
        "{killgraceperiodseconds: 5}",
        "{killgraceperiodseconds: 0}",
        "{killgraceperiodseconds: 5}",
    ),
    "text counts": ("{name: a}", "{name: b}", "{name: b}"),
    "empty text does not count": ("{name: a}", "{name: ''}", "{name: a}"),
    "a message counts as a whole": (
        "{resource: {cpulimit: 2, memlimitmb: 64}}",
        "{resource: {cpulimit: 3}}",
        "{resource: {cpulimit: 3}}",
    ),
    "an empty message counts": ("{resource: {cpulimit: 2}}", "{resource: {}}", "{resource: {}}"),
    "a Mesos message counts as a whole": (
        "{command: {value: a, user: u}}",
        "{command: {value: b}}",
        "{command: {value: b}}",
    ),
    "a message that is not there does not count": (
        "{restartpolicy: {maxfailures: 2}}",
        "{name: a}",
        "{name: a, restartpolicy: {maxfailures: 2}}",
    ),
    "a list is replaced": (
        "{ports: [{name: a}, {name: b}]}",
        "{ports: [{name: c}]}",
        "{ports: [{name: c}]}",
    ),
    "an empty list does not count": ("{labels: [{key: a}]}", "{labels: []}", "{labels: [{key: a}]}"),
    "secrets follow the volumes of the override": (
        f"{{container: {{type: MESOS, volumes: [{SECRET}, {PLAIN}]}}}}",
        f"{{container: {{type: DOCKER, volumes: [{PLAIN}]}}}}",
        f"{{container: {{type: DOCKER, volumes: [{PLAIN}, {SECRET}]}}}}",
    ),
    "secrets come alone when the override has no volumes": (
        f"{{container: {{type: MESOS, volumes: [{PLAIN}, {SECRET}]}}}}",
        "{container: {type: MESOS}}",
        f"{{container: {{type: MESOS, volumes: [{SECRET}]}}}}",
    ),
    "secrets are not doubled when the container is not overridden": (
        f"{{container: {{type: MESOS, volumes: [{SECRET}]}}}}",
        "{name: a}",
        f"{{name: a, container: {{type: MESOS, volumes: [{SECRET}]}}}}",
    ),
}


@pytest.mark.parametrize("case", MERGES)
def test_merge(case: str) -> None:
    """Each type of field is merged by its rule."""
    default, override, expected = (load_message(text, TaskConfig) for text in MERGES[case])
    job = JobConfig(defaultConfig=default, instanceConfig={3: override})
    before = job.SerializeToString(deterministic=True)
    assert effective_task_config(job, 3) == expected
    assert job.SerializeToString(deterministic=True) == before


def test_without_override_the_default_counts() -> None:
    """An instance without an override has the default, and the read adds no override."""
    job = JobConfig(defaultConfig=TaskConfig(name="a", revocable=True), instanceConfig={1: TaskConfig(name="b")})
    assert effective_task_config(job, 0) == job.defaultConfig
    assert list(job.instanceConfig) == [1]


def test_without_default_the_override_counts() -> None:
    """A job without a default has the overrides unchanged."""
    job = JobConfig(instanceConfig={1: TaskConfig(name="b")})
    assert effective_task_config(job, 1) == TaskConfig(name="b")
    assert effective_task_config(job, 0) == TaskConfig()
