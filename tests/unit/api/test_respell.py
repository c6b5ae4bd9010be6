"""Fields are copied between the versions of the API by their normalised names."""

from __future__ import annotations

from peloton.api.respell import respell
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.pod import pod_pb2


def test_spellings_and_messages_below_cross() -> None:
    """Scalars, lists, messages with the same numbers and messages with other numbers are copied."""
    spec = stateless_pb2.JobSpec(owning_team="maps", ldap_groups=["a", "b"], instance_count=3)
    spec.labels.add(key="stage", value="test")
    spec.respool_id.value = "pool"
    spec.sla.maximum_unavailable_instances = 2
    config = job_pb2.JobConfig()
    respell(spec, config)

    expected = job_pb2.JobConfig(owningTeam="maps", ldapGroups=["a", "b"], instanceCount=3)
    expected.labels.add(key="stage", value="test")
    expected.respoolID.value = "pool"
    expected.sla.maximumUnavailableInstances = 2
    assert expected == config


def test_fields_of_one_message_alone_leave_nothing_behind() -> None:
    """A port's type exists in v1alpha only, and is not kept in the bytes of the other message."""
    container = pod_pb2.ContainerSpec(name="c", ports=[pod_pb2.PortSpec(name="http", value=80, template_name="T")])
    task = task_pb2.TaskConfig()
    respell(container, task, ("ports",))

    assert task_pb2.TaskConfig(ports=[task_pb2.PortConfig(name="http", value=80)]) == task


def test_an_empty_message_stays_present() -> None:
    """An empty message is present after the copy."""
    pod = pod_pb2.PodSpec(restart_policy=pod_pb2.RestartPolicy())
    task = task_pb2.TaskConfig()
    respell(pod, task)
    assert task.HasField("restartPolicy")


def test_fields_of_other_types_do_not_cross() -> None:
    """Pod names are messages in queries of v1alpha and strings in v0's, so they are not copied."""
    wanted = task_pb2.QuerySpec()
    respell(pod_pb2.QuerySpec(names=[peloton_pb2.PodName(value="a")], hosts=["host-1"]), wanted)
    assert task_pb2.QuerySpec(hosts=["host-1"]) == wanted
