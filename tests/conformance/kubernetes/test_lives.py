"""Pods on emulated nodes go through the states that a real kubelet was seen to report (lives.json)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.kubernetes.emulated import EmulatedKubernetes
from tests.conformance.kubernetes.lives import IN_CONTAINERS, LIVES, RECORDED, play
from tests.kubernetes.client import Client, Json

pytestmark = pytest.mark.xdist_group("lives")
NOT_EMULATED = {
    "oom": "processes of emulated nodes have no limit on memory",
    "noimage": "images are always there, or come",
}
ANOTHER_WAY = {
    "nocmd": "the phase is Running as soon as a container has ended",
    "deadline": "the reason is seen before the container has ended",
    "two": "containers are reported one by one",
}
"""Lives whose end alone is the recorded one."""


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Json]]]:
    with EmulatedKubernetes(tmp_path_factory.mktemp("lives"), nodes=1) as cluster, Client(cluster.login) as client:
        yield play(client, "node-0", LIVES)


@pytest.mark.parametrize("name", LIVES)
def test_a_life(name: str, lives: dict[str, list[Json]]) -> None:
    """The states are the recorded ones, in the same order, except for lives that come to the same end."""
    if name in ANOTHER_WAY:
        assert RECORDED[name][-1] == lives[name][-1]
    else:
        assert RECORDED[name] == lives[name]


def test_every_recorded_life_is_lived_or_says_why_not() -> None:
    """No recording is left out silently."""
    assert set(RECORDED) == {*LIVES, *NOT_EMULATED}
    assert IN_CONTAINERS.keys() == NOT_EMULATED.keys()
