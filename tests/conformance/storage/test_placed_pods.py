"""Pods as placement reads them: their labels, and the hosts to which they return."""

from __future__ import annotations

import pytest

from peloton.api.v0.task import task_pb2
from peloton.model.ids import JobId, PodId
from peloton.model.job import JobState
from peloton.model.layout import GangClose, Layout, Spread
from peloton.model.pod import port_label
from peloton.model.update import UpdateSpec
from services.storage.pods import host_pods
from services.storage.pods import ready as ready_scans
from services.storage.storage import Storage
from tests.conformance.storage.builders import (
    NOW,
    SECOND,
    Clock,
    F,
    K,
    L,
    R,
    a_config,
    a_job,
    admit,
    create,
    launch,
    pod,
    ready_pods,
    report,
)
from tests.conformance.storage.services import a_service, service_config, turn, update
from tests.present import require

WEB, EU = ("app", "web"), ("zone", "eu")
HOUR = 3600 * SECOND


def create_labelled_job(storage: Storage, count: int, constraint: bool = False) -> JobId:
    """Create an admitted job. Instance 1 has an additional zone."""
    config = a_config(count)
    config.defaultConfig.ClearField("labels")
    config.defaultConfig.labels.add(key=WEB[0], value=WEB[1])
    if constraint:
        rule = config.defaultConfig.constraint
        rule.type = task_pb2.Constraint.LABEL_CONSTRAINT
        rule.labelConstraint.kind = task_pb2.LabelConstraint.TASK
        rule.labelConstraint.condition = task_pb2.LabelConstraint.CONDITION_LESS_THAN
        rule.labelConstraint.label.key, rule.labelConstraint.label.value = WEB
        rule.labelConstraint.requirement = 1
    config.instanceConfig[1].labels.add(key=WEB[0], value=WEB[1])
    config.instanceConfig[1].labels.add(key=EU[0], value=EU[1])
    job_id = create(storage, config)
    storage.pods.create(job_id, lambda _: None)
    storage.jobs.settle(job_id, NOW)
    admit(storage, job_id)
    return job_id


def test_labelled_pods_on_hosts(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer contains every run on a host, with the labels of its own configuration and its dynamic ports, without
    ended runs."""
    monkeypatch.setattr(host_pods, "PAGE_PODS", 2)
    job_id = create_labelled_job(storage, 5)
    hosts = {i: require(storage.pods.get(job_id, i)).host for i in sorted(launch(storage, job_id))}
    report(storage, job_id, [4], K)

    found = {pod: (host, labels) for page in storage.host_pods.list_labelled() for pod, host, labels in page}

    port = port_label(31_000)
    mine = {i: (WEB, EU, port) if i == 1 else (WEB, port) for i in range(4)}
    assert {PodId(job_id, i, 1): (hosts[i], labels) for i, labels in mine.items()} == {
        pod: (host, tuple(dict.fromkeys(labels))) for pod, (host, labels) in found.items()
    }


def test_ready_pods_of_a_big_job_are_read_from_the_first_one_on(
    storage: Storage, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that waits again comes after those behind it for five seconds, unless too few of them wait."""
    monkeypatch.setattr(ready_scans, "BIG_PODS", 6)
    job_id = a_job(storage, 6, retries=2)
    admit(storage, job_id)

    def ready(limit: int) -> list[int]:
        return [instance for gang in storage.pods.ready_gangs(job_id, limit) for instance, _ in gang.pods]

    launch(storage, job_id, 2)
    assert [2, 3] == ready(2)
    report(storage, job_id, [0], R)
    report(storage, job_id, [0], F)
    storage.jobs.settle(job_id, NOW + HOUR)
    admit(storage, job_id)

    assert [2, 3] == ready(2)
    assert [0, 2, 3, 4, 5] == ready(10)
    assert [0, 2] == ready(2)
    launch(storage, job_id, 1)
    assert [2, 3] == ready(2)
    report(storage, job_id, [1], R)
    report(storage, job_id, [1], F)
    storage.jobs.settle(job_id, NOW + HOUR)
    admit(storage, job_id)
    clock.advance(4.9)
    assert [2, 3] == ready(2)
    clock.advance(0.2)
    assert [1, 2] == ready(2)


def test_ready_pods_carry_the_labels_that_are_counted(storage: Storage) -> None:
    """A READY pod has the labels that a constraint of its job names, and none without a constraint."""
    assert [((WEB),)] * 2 == [
        gang.labels for gang in storage.pods.ready_gangs(create_labelled_job(storage, 2, True), 10)
    ]
    assert [()] * 2 == [gang.labels for gang in storage.pods.ready_gangs(create_labelled_job(storage, 2), 10)]


def test_pods_come_back_to_a_host(storage: Storage) -> None:
    """An update in place reserves the resources of the pod's next run, and placement reads its host. The first RUNNING
    ends the reservation."""
    job_id = a_service(storage, 2)
    home = pod(storage, job_id, 0).host
    bigger = service_config(2, "v2")
    bigger.defaultConfig.resource.cpuLimit = 2.5
    update(storage, job_id, bigger, UpdateSpec(batch_size=1, in_place=True))
    turn(storage, job_id, starts=False)
    [back] = storage.host_pods.coming_back(job_id, [0, 1])
    admit(storage, job_id)

    assert (0, home, 2_500, 30) == (back.instance_id, back.hostname, back.resources.cpu_milli, back.grace_s)
    assert [home] == [gang.desired_host for gang in storage.pods.ready_gangs(job_id, 10)]
    launch(storage, job_id)
    assert home == pod(storage, job_id, 0).desired_host
    report(storage, job_id, [0], R)
    assert "" == pod(storage, job_id, 0).desired_host


def test_a_pod_that_goes_elsewhere_wants_its_host_no_more(storage: Storage) -> None:
    """A pod that goes to another host reserves nothing on its former one, also when it has to run again before it
    ran."""
    job_id = a_service(storage, 1)
    update(storage, job_id, service_config(1, "v2"), UpdateSpec(in_place=True))
    turn(storage, job_id, starts=False)
    admit(storage, job_id)
    [(instance, run_id)] = ready_pods(storage, job_id)

    storage.host_pods.mark_launched(job_id, [(instance, run_id, "elsewhere", "agent", {})], NOW, "")

    assert ("elsewhere", "") == (pod(storage, job_id, 0).host, pod(storage, job_id, 0).desired_host)
    assert [] == storage.host_pods.coming_back(job_id, [0])


def test_only_the_gang_has_to_be_close(storage: Storage) -> None:
    """Pods of the job outside the gang are only spread."""
    config = a_config(3, minimumRunningInstances=2)
    config.placement.spread.add(label="zone")
    config.placement.gangClose.label = "rack"
    job_id = create(storage, config)
    storage.pods.create(job_id, lambda _: None)
    storage.jobs.settle(job_id, NOW)
    admit(storage, job_id)

    gang = storage.pods.ready_gang(job_id)

    assert gang is not None
    assert Layout((Spread("zone"),), GangClose("rack")) == gang.shape.layout
    assert [Layout((Spread("zone"),))] == [one.shape.layout for one in storage.pods.ready_gangs(job_id, 10)]


def test_homes_of_pods(storage: Storage) -> None:
    """The answer has the hosts of current pods and of pods that an update in place replaces at the moment. Ended pods
    have none, and an instance that is left out is missing."""
    job_id = a_service(storage, 4)
    all_hosts = storage.pods.preferred_hosts(job_id, "")
    assert {"host0": 2, "host1": 1, "host2": 1} == all_hosts
    update(storage, job_id, service_config(4, "v2"), UpdateSpec(batch_size=1, in_place=True))
    turn(storage, job_id, starts=False)
    assert "" == pod(storage, job_id, 0).host

    assert all_hosts == storage.pods.preferred_hosts(job_id, "")
    assert {"host0": 1, "host1": 1, "host2": 1} == storage.pods.preferred_hosts(job_id, "", [0, 1])
    assert {} == storage.pods.preferred_hosts(job_id, "another cluster")
    report(storage, job_id, [1], F)
    assert {"host0": 2, "host2": 1} == storage.pods.preferred_hosts(job_id, "")


@pytest.mark.parametrize("how", ["stopped", "failed", "lost"])
def test_pods_that_do_not_come_back(storage: Storage, how: str) -> None:
    """A stopped pod requires no host, and a failed or lost one takes any."""
    job_id = a_service(storage, 1)
    update(storage, job_id, service_config(1, "v2"), UpdateSpec(in_place=True))
    storage.updates.advance(job_id, NOW)
    assert "" != pod(storage, job_id, 0).desired_host

    if how == "stopped":
        storage.jobs.set_goal(job_id, JobState.KILLED, NOW)
    else:
        report(storage, job_id, [0], F if how == "failed" else L)

    assert ("", []) == (pod(storage, job_id, 0).desired_host, storage.host_pods.coming_back(job_id, [0]))
