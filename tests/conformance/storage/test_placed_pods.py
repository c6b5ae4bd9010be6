"""What placement is told of pods: their labels."""

from __future__ import annotations

import pytest

from peloton.model.ids import JobId, PodId
from services.storage import pods as pods_module
from services.storage.gateway import Gateway
from tests.conformance.storage.builders import NOW, K, a_config, admit, create, launch, report

WEB, EU = ("app", "web"), ("zone", "eu")


def labelled_job(gateway: Gateway, count: int, constraint: bool = False) -> JobId:
    """Admitted; instance 1 has a zone of its own besides."""
    config = a_config(count)
    config.defaultConfig.ClearField("labels")
    config.defaultConfig.labels.add(key=WEB[0], value=WEB[1])
    if constraint:
        rule = config.defaultConfig.constraint
        rule.type, rule.labelConstraint.kind, rule.labelConstraint.condition = 1, 1, 1
        rule.labelConstraint.label.key, rule.labelConstraint.label.value = WEB
        rule.labelConstraint.requirement = 1
    config.instanceConfig[1].labels.add(key=WEB[0], value=WEB[1])
    config.instanceConfig[1].labels.add(key=EU[0], value=EU[1])
    job_id = create(gateway, config)
    gateway.create_pods(job_id, lambda _: None)
    gateway.settle(job_id, NOW)
    admit(gateway, job_id)
    return job_id


def test_labelled_pods_on_hosts(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every run on a host, with the labels of its own configuration; ended ones are not among them."""
    monkeypatch.setattr(pods_module, "PAGE_PODS", 2)
    job_id = labelled_job(gateway, 5)
    hosts = {i: gateway.pod(job_id, i).host for i in sorted(launch(gateway, job_id))}  # type: ignore[union-attr]
    report(gateway, job_id, [4], K)

    found = {pod: (host, labels) for page in gateway.labelled_pods() for pod, host, labels in page}

    mine = {i: (WEB, EU) if i == 1 else (WEB,) for i in range(4)}
    assert {PodId(job_id, i, 1): (hosts[i], labels) for i, labels in mine.items()} == {
        pod: (host, tuple(dict.fromkeys(labels))) for pod, (host, labels) in found.items()
    }


def test_ready_pods_carry_the_labels_that_are_counted(gateway: Gateway) -> None:
    """Those that a constraint of their job names; without one, none."""
    assert [((WEB),)] * 2 == [gang.labels for gang in gateway.ready_gangs(labelled_job(gateway, 2, True), 10)]
    assert [()] * 2 == [gang.labels for gang in gateway.ready_gangs(labelled_job(gateway, 2), 10)]
