"""The room that stand-ins and the pods in their places hold on nodes: it is given back, in whatever order watches tell
of its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from services.hostmgr.kubernetes.external.external_pods import ExternalPods
from services.hostmgr.kubernetes.external.gate import node_of_fit
from services.hostmgr.kubernetes.suspend.held_owner import HeldOwner, stand_ins_of
from tests.unit.hostmgr.kubernetes.held_world import JOB, NODE, HeldWorld, a_job, a_pod_of, admit, open_world
from tests.unit.hostmgr.kubernetes.scripted import answer, api_of, run_scripted

STAND_IN = "team/train:main-0"


@pytest.fixture
def world() -> Iterator[HeldWorld]:
    """A Job of one pod that is admitted to the node."""
    with open_world() as world:
        world.owners.change(JOB, a_job(), is_deleted=False)
        world.owners.change(JOB, admit(a_job()), is_deleted=False)
        assert [STAND_IN] == world.claims
        yield world


@pytest.mark.parametrize("how", ["DELETED", "ended", "a new list"])
def test_a_pod_whose_end_is_known_before_its_node_holds_no_resources(world: HeldWorld, how: str) -> None:
    """The watch of pods on nodes was first: the room that the other one claimed for the pod was never given back."""
    pod = a_pod_of(admit(a_job()), 1)
    over = {**pod, "status": {"phase": "Succeeded"}}
    world.bound.pod_changed(pod, is_deleted=False)
    world.bound.pod_changed(over, is_deleted=True)

    world.pods.on_change("MODIFIED", pod)
    assert ["team/train-1"] == world.claims
    if how == "a new list":
        world.pods.on_replace([])
    else:
        world.pods.on_change(*(("DELETED", pod) if how == "DELETED" else ("MODIFIED", over)))

    assert [] == world.claims


def test_the_end_of_a_pod_leaves_the_resources_of_the_next_one_of_its_name(world: HeldWorld) -> None:
    """Names of pods repeat, as those of training workers do."""
    pod = a_pod_of(admit(a_job()), 1)
    world.bound.pod_changed(pod, is_deleted=False)
    world.pods.on_change("MODIFIED", pod)
    world.bound.pod_changed(pod, is_deleted=True)
    world.bound.pod_changed({**pod, "metadata": {**pod["metadata"], "uid": "pod-2"}}, is_deleted=False)

    world.pods.on_change("DELETED", pod)

    assert ["team/train-1"] == world.claims


def test_a_pod_that_is_first_seen_when_it_has_ended_ends_the_claim_of_its_place(world: HeldWorld) -> None:
    """The next pod in its place, on the same node, would be counted twice."""
    owner = admit(a_job())
    world.pods.on_change("MODIFIED", a_pod_of(owner, 1, phase="Failed"))
    second = a_pod_of(owner, 2)
    world.bound.pod_changed(second, is_deleted=False)
    world.pods.on_change("MODIFIED", second)

    assert ["team/train-2"] == world.claims


def test_an_answer_that_is_older_than_the_watch_claims_no_resources_again() -> None:
    """A launch in doubt is read directly, without the pods in the places of stand-ins."""
    owner = admit(a_job())
    [one] = stand_ins_of(HeldOwner(JOB, owner))
    claims: list[str] = []

    with run_scripted(lambda asked: iter([answer(200, {})])) as server, api_of(server) as api:
        pods = ExternalPods(
            *(api, "k8s", lambda node: "", lambda reports: None, lambda keys: {}, lambda pod: None),
            fits=lambda pod, node: claims.append(node),
        )
        pods.add_source().on_replace([{**one, "spec": {**one["spec"], "nodeName": NODE}}])
        assert NODE == node_of_fit(one)
        pods.look(one)

    assert [] == claims
