"""Images that are fetched ahead, and their hosts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.lifecycle import rollout
from peloton.lifecycle.images import PrefetchCandidate, to_fetch
from peloton.model.pod import PodState
from peloton.model.update import UpdateRecord, UpdateSpec, UpdateState, UpdateType
from tests.unit.lifecycle.pods import JOB, service_pod

RUNNING, PENDING, KILLED = PodState.RUNNING, PodState.PENDING, PodState.KILLED
IN_PLACE = UpdateSpec(batch_size=2, in_place=True)


def candidate(host: str = "h0", image: str = "web:1", next_image: str = "web:2", **more: Any) -> PrefetchCandidate:
    return PrefetchCandidate(
        **{"state": RUNNING, "desired_host": "", **more}, host=host, image=image, next_image=next_image
    )


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (candidate(), {"web:2": ["h0"]}),
        (candidate(image=""), {"web:2": ["h0"]}),  # its first image, or one that an older version did not record
        (candidate(next_image="web:1"), {}),
        (candidate(next_image=""), {}),
        (candidate(state=PENDING), {}),  # `host` is where its last run was
        (candidate(state=KILLED), {}),
        (candidate(state=PENDING, desired_host="h7"), {"web:2": ["h7"]}),
        (candidate(desired_host="h7"), {"web:2": ["h7"]}),
        (candidate(host=""), {}),
    ],
)
def test_one_instance(one: PrefetchCandidate, expected: dict[str, list[str]]) -> None:
    """Each instance with a known host and another image has an image to fetch, others have none."""
    assert expected == to_fetch([one])


def test_hosts_come_in_order_and_once_per_image() -> None:
    """Instances with images of their own bring them to the same hosts."""
    candidates = [
        candidate("h2"),
        candidate("h0"),
        candidate("h2"),
        candidate("h0", next_image="web:3"),
        candidate("h1"),
    ]
    assert {"web:2": ["h2", "h0", "h1"], "web:3": ["h0"]} == to_fetch(candidates)


@given(st.lists(st.builds(candidate, st.sampled_from("abc"), next_image=st.sampled_from("xyz"))), st.integers(0, 5))
def test_the_bound(candidates: list[PrefetchCandidate], limit: int) -> None:
    """A bound limits the images on hosts, the ones needed first; it changes no other part of the result."""
    cut, whole = (
        [(image, host) for image, hosts in found.items() for host in hosts]
        for found in (to_fetch(candidates, limit), to_fetch(candidates))
    )
    assert min(limit, len(whole)) == len(cut) == len(set(cut))
    assert set(cut) <= set(whole)
    first = dict.fromkeys((c.next_image, c.host) for c in candidates)
    assert list(first)[:limit] == sorted(cut, key=list(first).index)


# The next instances.


def update(spec: UpdateSpec = IN_PLACE, type: UpdateType = UpdateType.UPDATE, **changes: Any) -> UpdateRecord:
    sets: dict[str, Any] = {
        k: frozenset(changes.pop(k, ())) for k in ("added", "updated", "removed", "current", "done", "failed")
    }
    state = changes.pop("state", UpdateState.ROLLING_FORWARD)
    return UpdateRecord("u", JOB, type, spec, state, config_version=2, prev_config_version=1, **sets)


def test_the_next_batches_in_the_order_of_the_rollout() -> None:
    """Two batches of waiting instances are next, the unavailable first; added ones have no host, removed ones
    no image.
    """
    pods = {i: service_pod(i) for i in range(9)}
    pods[6] = replace(pods[6], state=PENDING)
    one = update(added={9}, updated=range(8), removed={8}, current={0, 1}, done={2}, failed={3})
    assert [6, 4, 5] == [*rollout.coming_back(one, pods)]
    last = update(added={9}, updated=range(8), removed={8}, current={0, 1}, done={2, 3, 4, 6, 9})
    assert [5, 7] == [*rollout.coming_back(last, pods)]


@pytest.mark.parametrize(
    "one",
    [
        update(replace(IN_PLACE, in_place=False), updated=range(4)),
        update(type=UpdateType.RESTART, updated=range(4)),
        update(state=UpdateState.PAUSED, updated=range(4)),
        update(state=UpdateState.INITIALIZED, updated=range(4)),
        update(state=UpdateState.ABORTED, updated=range(4)),
        update(replace(IN_PLACE, batch_size=0), updated=range(4), current=range(4)),
    ],
)
def test_no_pod_comes_back_with_another_image(one: UpdateRecord) -> None:
    """Instances that are placed again, restarted or not in the update have no known host, or no new image."""
    assert {} == rollout.coming_back(one, {i: service_pod(i) for i in range(4)})


def test_all_that_an_sla_delays_come_next() -> None:
    """A batch that the SLA limits to single pods has no size; all other instances are waiting."""
    pods = {i: service_pod(i) for i in range(4)}
    step = rollout.next_step(update(replace(IN_PLACE, batch_size=0), updated=range(4)), pods, sla_maximum=1)
    assert ((0,), (1, 2, 3)) == (step.change, (*rollout.coming_back(step.update, pods),))


@given(st.integers(1, 25), st.integers(1, 7), st.data())
def test_reading_once_per_batch_misses_no_host(count: int, batch: int, data: st.DataObject) -> None:
    """Read once per batch name every instance that begins after the first step, however few at a time a batch is
    filled up with; there are no more reads than batches.
    """
    pods = {i: service_pod(i) for i in range(count)}
    one = update(replace(IN_PLACE, batch_size=batch), updated=range(count), state=UpdateState.INITIALIZED)
    named, looked_at, looks = set[int](), "", 0
    while one.is_active:
        step = rollout.next_step(one, pods)
        is_first, one = not one.current and not one.done, step.update
        assert is_first or set(step.change) <= named
        coming, seen = rollout.coming_back(one, pods), rollout.progress_of(one, step).batch
        if coming and seen != looked_at:
            named, looked_at, looks = named | set(coming), seen, looks + 1
        for i in step.change:
            pods[i] = service_pod(i, 2, state=PENDING)
        if one.current:
            for i in data.draw(st.sets(st.sampled_from(sorted(one.current)), min_size=1)):
                pods[i] = service_pod(i, 2)

    assert looks <= -(-count // batch)
