"""External pods: assigning and releasing instances of jobs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from peloton.lifecycle.external import AdoptionPlan, allocate, plan_adoption, pool_of
from peloton.model.external import ObservedPod, Slot
from peloton.model.ids import JobId, RespoolId
from peloton.model.pod import ON_HOST, TERMINAL, PodState

A, B = JobId("job-a"), JobId("job-b")
_LIVING = [PodState.INITIALIZED, PodState.PENDING, PodState.READY, *sorted(ON_HOST)]
_STATES = [*_LIVING, *sorted(TERMINAL - {PodState.DELETED})]


def waiting(uid: str, job: JobId = A) -> ObservedPod:
    return ObservedPod(uid, job, waits=True)


def make_gone_pod(uid: str, job: JobId = A) -> ObservedPod:
    return ObservedPod(uid, job, waits=False)


def slot(uid: str, state: PodState | None, instance: int = 0, runs_again: bool = False) -> Slot:
    return Slot(uid, A, instance, state, runs_again)


def test_a_pod_that_waits_gets_an_instance_of_its_owners_job() -> None:
    """Waiting pods are assigned to instances by job, in their order."""
    plan = plan_adoption([waiting("p2"), waiting("p1"), waiting("q", B)], [])
    assert AdoptionPlan(take={A: ["p2", "p1"], B: ["q"]}) == plan


def test_a_pod_that_has_an_instance_is_not_taken_again() -> None:
    """A pod with an instance is not assigned another, whatever the state of its instance, unless that has ended."""
    for state in _LIVING:
        assert AdoptionPlan() == plan_adoption([waiting("p")], [slot("p", state)])


def test_a_pod_whose_run_ended_in_the_queue_is_taken_again() -> None:
    """A pod whose gang left the queue with a member, and which still waits, is assigned an instance again."""
    assert {A: ["p"]} == plan_adoption([waiting("p")], [slot("p", PodState.KILLED)]).take


def test_a_run_that_was_never_bound_continues_with_its_pod() -> None:
    """A run that was never bound is LOST, and another run starts for its pod without an intake."""
    assert AdoptionPlan() == plan_adoption([waiting("p")], [slot("p", PodState.LOST, runs_again=True)])


def test_a_pod_that_is_deleted_while_it_waits_leaves_the_queue() -> None:
    """A waiting pod that is deleted, or bound by another scheduler, leaves the queue."""
    for seen in ([], [make_gone_pod("p")]):
        plan = plan_adoption(seen, [slot("p", PodState.PENDING, 3)])
        assert AdoptionPlan(stop={A: [3]}, forget=("p",)) == plan


def test_a_pod_on_a_host_keeps_its_instance_until_its_end_is_stored() -> None:
    """The cluster reports how it ends; then the instance is free."""
    assert AdoptionPlan() == plan_adoption([], [slot("p", PodState.RUNNING)])
    assert AdoptionPlan(forget=("p",)) == plan_adoption([make_gone_pod("p")], [slot("p", PodState.SUCCEEDED)])


def test_pods_beyond_the_bound_wait_outside() -> None:
    """The oldest pods are assigned first, and pods that have an instance count in the bound."""
    plan = plan_adoption([waiting("a"), waiting("b"), waiting("c")], [slot("a", PodState.PENDING)], waiting_max=2)
    assert ({A: ["b"]}, ("c",)) == (plan.take, plan.left_out)


def test_instances_at_rest_are_assigned_before_new_ones() -> None:
    """Ended instances are assigned before new ones, so that their number is bounded by the pods alive at a time."""
    found = {0: (PodState.RUNNING, False), 1: (PodState.SUCCEEDED, False), 2: (PodState.LOST, True)}
    assert [1, 3] == allocate(2, found)


def test_a_gang_gathers_in_its_instances_and_later_pods_stand_alone() -> None:
    """A member that is replaced while the others run receives an instance outside of the gang, and does not wait for
    it.
    """
    waits, runs, ended = (PodState.INITIALIZED, False), (PodState.RUNNING, False), (PodState.KILLED, False)
    assert [0, 1] == allocate(2, {}, gang_size=3)
    assert [2, 3] == allocate(2, {0: waits, 1: waits}, gang_size=3)
    assert [1] == allocate(1, {0: waits, 1: ended, 2: waits}, gang_size=3)
    assert [3] == allocate(1, {0: runs, 1: ended, 2: runs}, gang_size=3)
    assert [0, 1, 2] == allocate(3, {0: ended, 1: ended, 2: ended}, gang_size=3)


_INSTANCES = st.lists(st.tuples(st.sampled_from(_STATES), st.booleans()), max_size=8)


@given(count=st.integers(0, 10), found=_INSTANCES, gang_size=st.integers(1, 6))
def test_assigned_instances_are_free_and_leave_no_gap(
    count: int, found: list[tuple[PodState, bool]], gang_size: int
) -> None:
    """No instance is assigned twice, and none to two live pods."""
    instances = dict(enumerate(found))
    gang_incomplete = all(state is PodState.INITIALIZED or state in TERMINAL for state, _ in found[:gang_size])
    if len(found) < gang_size and not gang_incomplete:
        return  # a gang is only under way when all of its members were there
    allocated = allocate(count, instances, gang_size)
    assert count == len(allocated) == len(set(allocated))
    assert all(i not in instances or (instances[i][0] in TERMINAL and not instances[i][1]) for i in allocated)
    assert list(range(len(found) + sum(i not in instances for i in allocated))) == sorted({*instances, *allocated})


_SEEN = st.dictionaries(st.sampled_from("abcdef"), st.booleans())
_SLOTS = st.dictionaries(st.sampled_from("abcdefg"), st.tuples(st.sampled_from([None, *_STATES]), st.booleans()))


@given(seen=_SEEN, held=_SLOTS, waiting_max=st.integers(0, 4))
def test_after_an_intake_each_waiting_pod_has_one_instance(
    seen: dict[str, bool], held: dict[str, tuple[PodState | None, bool]], waiting_max: int
) -> None:
    """Each waiting pod has an instance or is beyond the bound; other pods have one on hosts only; a second intake
    changes nothing.
    """
    slots = [slot(uid, state, i, again) for i, (uid, (state, again)) in enumerate(held.items())]
    observed_pods = [ObservedPod(uid, A, waits) for uid, waits in seen.items()]
    plan = plan_adoption(observed_pods, slots, waiting_max)
    taken = plan.take.get(A, [])
    assert not {*taken} & {*plan.left_out}
    after = {one.uid: one for one in slots if one.uid not in plan.forget}
    after |= {uid: slot(uid, PodState.INITIALIZED, 100 + at) for at, uid in enumerate(taken)}
    for uid, waits in seen.items():
        if waits and uid not in plan.left_out:
            assert not after[uid].is_at_rest
        elif not waits:
            assert uid not in after or after[uid].is_on_host
    again = plan_adoption(observed_pods, after.values(), waiting_max)
    assert ({}, {}, (), plan.left_out) == (again.take, again.stop, again.forget, again.left_out)


def test_a_pool_is_named_by_its_path_or_by_its_names() -> None:
    """A name that matches two pools, or none, is an error that names it."""
    leaves = {"/team/dev": RespoolId("1"), "/team.dev": RespoolId("2"), "/ops": RespoolId("3")}
    leaves |= {"/a/web": RespoolId("4"), "/b/web": RespoolId("5")}
    assert (RespoolId("1"), "") == pool_of("/team/dev", leaves)
    assert (RespoolId("3"), "") == pool_of("ops", leaves)
    assert (RespoolId("1"), "") == pool_of("dev", leaves)
    for text, said in (
        ("team.dev", "/team.dev or /team/dev"),
        ("web", "/a/web or /b/web"),
        ("/team", "no pool '/team'"),
        ("", "names no pool"),
    ):
        pool, why = pool_of(text, leaves)
        assert (RespoolId(""), True) == (pool, said in why)
