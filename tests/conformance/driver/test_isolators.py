"""Agents of Mesos that lack isolators: a minicluster whose flags say so refuses as a real agent does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from peloton.api.cluster_kinds import MOUNTS_SECRETS
from peloton.lifecycle.constraints import matches
from peloton.model.host_pool import Factors
from peloton.model.pod import Cause, PodState
from peloton.model.secret import Secret
from services.hostmgr.driver import HostLaunch, PodOnHost
from services.hostmgr.mesos.operator import Operator
from tests.conformance.driver.conftest import Mesos
from tests.conformance.driver.lab import Lab, lab_on
from tests.conformance.hostmgr.emulated import Emulated
from tests.nightly import nightly

HALVED = Factors(200, 200)


@pytest.fixture(params=["processes", nightly("simulated")])
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """A cluster of agents with the isolators that are the default of Mesos."""
    simulates = request.param == "simulated"
    emulated = Emulated(tmp_path / "minicluster", simulate=simulates, isolation="posix/cpu,posix/mem")
    with closing(Mesos(emulated, emulated.target)) as cluster, lab_on(cluster) as made:
        yield made


def test_pods_with_factors_run_on_agents_that_limit_nothing(bare: Lab) -> None:
    """Limits are left out, which the agent would refuse: it lets a task use more than it takes."""
    pod = bare.pod(bare.template(cpu=1))._replace(factors=HALVED)
    assert [] == bare.driver.launch([HostLaunch(bare.claim_of(cpu=1), [pod])])
    bare.wait_for(PodOnHost(pod.pod_id), PodState.RUNNING)
    assert PodState.LOST not in bare.states(PodOnHost(pod.pod_id))


def test_a_refused_limit_blames_no_host_and_is_left_out_the_next_time(
    bare: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent whose flags cannot be read is tried with limits. The message of its refusal names the isolator."""

    def hide(operator: Operator, address: str, process: str) -> None:
        raise OSError("connection refused")

    monkeypatch.setattr(Operator, "flags", hide)
    bare.stop()
    bare.start()
    host = bare.host_with_free(cpu=1)
    for kind in ("cpu", "mem"):
        pod = bare.pod(bare.template(cpu=1))._replace(factors=HALVED)
        assert [] == bare.driver.launch([HostLaunch(bare.claim_of(host, cpu=1), [pod])])
        status = bare.wait_for(PodOnHost(pod.pod_id), PodState.LOST).status
        assert status is not None
        assert Cause.NOT_STARTED is status.cause
        assert f"'cgroups/{kind}' isolator" in status.message

    pod = bare.pod(bare.template(cpu=1))._replace(factors=HALVED)
    assert [] == bare.driver.launch([HostLaunch(bare.claim_of(host, cpu=1), [pod])])
    bare.wait_for(PodOnHost(pod.pod_id), PodState.RUNNING)


def test_pods_with_secrets_are_refused_by_agents_that_mount_none(bare: Lab) -> None:
    """The reason names agent and isolator, and the host has the label by which placement avoids it."""
    claim = bare.claim_of(cpu=0.5)
    pod = bare.pod(bare.template(secrets=[Secret("id", "/run/key", b"hidden")]))
    ((pod_id, reason),) = bare.driver.launch([HostLaunch(claim, [pod])])
    assert pod.pod_id == pod_id
    assert reason.startswith(
        f"agent {claim.hostname} mounts no secrets: its --isolation=posix/cpu,posix/mem lacks volume/secret"
    )
    bare.wait(lambda: not matches(MOUNTS_SECRETS, bare.events.hosts[claim.hostname].labels), "the label")
    bare.running(hostname=claim.hostname)
