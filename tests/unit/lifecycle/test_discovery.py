"""Ranks, addresses and peers of the members of a gang."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from peloton.lifecycle.discovery import (
    NOWHERE,
    PEERS_MAX,
    Bounds,
    Convention,
    GangPod,
    Launch,
    Peer,
    UnknownConvention,
    choose_port,
    conventions_in,
    extra_variables,
    view_gang,
)
from peloton.model.pod import PodState

RUNNING = PodState.RUNNING
PEERS = [Peer("a", "10.0.0.1", 31_000), Peer("b", "10.0.0.2", 31_000), Peer("a", "10.0.0.1", 31_001)]
BOUNDS = Bounds(3, 5)
TORCH = frozenset({Convention.TORCH})


def variables(*names: str, **changes: Any) -> list[dict[str, str]]:
    """Return the variables of PEERS whose names begin with one of ``names``."""
    launch = replace(Launch(2, BOUNDS, PEERS), **changes)
    return [{name: own[name] for name in own if name.startswith(names)} for own in launch.variables()]


def test_ranks_are_instances_and_local_ranks_count_per_host() -> None:
    """Members on one host count from 0 in the order of ranks, whatever their addresses."""
    found = variables("PELOTON_GANG_RANK", "PELOTON_GANG_LOCAL")
    assert [("0", "0", "2"), ("1", "0", "1"), ("2", "1", "2")] == [
        tuple(own[f"PELOTON_GANG_{name}"] for name in ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")) for own in found
    ]


def test_all_members_have_the_same_peers_coordinator_and_generation() -> None:
    """The own address alone differs."""
    shared = variables(
        *(f"PELOTON_GANG_{name}" for name in ("GENERATION", "WORLD", "MIN", "MAX", "COORDINATOR", "PEERS"))
    )
    expected = {
        "PELOTON_GANG_GENERATION": "2",
        "PELOTON_GANG_WORLD_SIZE": "3",
        "PELOTON_GANG_MINIMUM": "3",
        "PELOTON_GANG_MAXIMUM": "5",
        "PELOTON_GANG_COORDINATOR": "10.0.0.1:31000",
        "PELOTON_GANG_PEERS": "10.0.0.1:31000,10.0.0.2:31000,10.0.0.1:31001",
    }
    assert [expected] * 3 == shared
    assert ["10.0.0.1:31000", "10.0.0.2:31000", "10.0.0.1:31001"] == [
        own["PELOTON_GANG_ADDRESS"] for own in variables("PELOTON_GANG_ADDRESS")
    ]


def test_large_gangs_have_no_addresses_of_all_in_the_environment() -> None:
    """Members of a gang above the bound have the coordinator's address alone."""
    peers = [Peer("a", "10.0.0.1", 31_000 + rank) for rank in range(PEERS_MAX + 1)]
    asked = {rank: frozenset(Convention) for rank in range(len(peers))}
    found = Launch(1, Bounds(len(peers), len(peers)), peers, asked).variables()

    assert not any("PELOTON_GANG_PEERS" in own or "TF_CONFIG" in own for own in found)
    assert {"10.0.0.1:31000"} == {own["JAX_COORDINATOR_ADDRESS"] for own in found}
    assert max(sum(map(len, own.values())) for own in found) < 250


def test_names_of_frameworks_are_given_on_request() -> None:
    """Each member gets the names that its own label asks for."""
    asked = {0: frozenset(Convention), 2: TORCH}
    first, second, third = variables("MASTER", "RANK", "WORLD", "LOCAL", "JAX", "TF", conventions=asked)

    assert {} == second
    assert third == {
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "31000",
        "RANK": "2",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
    }
    assert ("10.0.0.1:31000", "3", "0") == (
        first["JAX_COORDINATOR_ADDRESS"],
        first["JAX_NUM_PROCESSES"],
        first["JAX_PROCESS_ID"],
    )
    assert json.loads(first["TF_CONFIG"]) == {
        "cluster": {"worker": [peer.endpoint for peer in PEERS]},
        "task": {"type": "worker", "index": 0},
    }


def test_pods_with_gpus_are_alone_with_their_devices() -> None:
    """The local rank that torch uses as the number of a device is 0, as each pod sees its own devices alone."""
    peers = [peer._replace(has_gpus=True) for peer in PEERS]
    found = variables("LOCAL", peers=peers, conventions=dict.fromkeys(range(3), TORCH))
    assert [{"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}] * 3 == found


def test_extras_have_a_coordinator_and_no_rank() -> None:
    """A gang that is not launched has no coordinator, and frameworks have no names for one without a port."""
    extra = Peer("c", "10.0.0.3", 31_005)
    own = extra_variables(2, BOUNDS, extra, PEERS[0], TORCH)

    assert ("10.0.0.3:31005", "10.0.0.1:31000") == (own["PELOTON_GANG_ADDRESS"], own["PELOTON_GANG_COORDINATOR"])
    assert ("10.0.0.1", "31000") == (own["MASTER_ADDR"], own["MASTER_PORT"])
    assert not {"PELOTON_GANG_RANK", "RANK", "PELOTON_GANG_PEERS"} & own.keys()
    portless = [peer._replace(port=0) for peer in PEERS]
    assert [{}] * 3 == variables("MASTER", "JAX", "TF", peers=portless, conventions={0: frozenset(Convention)})
    none = extra_variables(0, BOUNDS, extra, NOWHERE, TORCH)
    assert ("", False) == (none["PELOTON_GANG_COORDINATOR"], "MASTER_ADDR" in none)


@pytest.mark.parametrize(
    ("ports", "expected"), [({}, 0), ({"http": 1, "gang": 2}, 2), ({"http": 1, "other": 2}, 1)], ids=repr
)
def test_peers_use_the_port_gang_or_the_first_one(ports: dict[str, int], expected: int) -> None:
    """A pod without dynamic ports is reached by its host alone."""
    assert expected == choose_port(ports)


def test_addresses() -> None:
    """An address of IPv6 has brackets before a port."""
    assert ["h", "h:1", "[::1]:1"] == [Peer("x", *own).endpoint for own in (("h", 0), ("h", 1), ("::1", 1))]


def test_the_label_names_conventions() -> None:
    """Names have commas between; an unknown one is named by the error."""
    assert frozenset(Convention) == conventions_in("torch, jax,tensorflow,")
    expected = "label peloton.gang has value .torch,mxnet.: want some of torch, jax, tensorflow, with commas between"
    with pytest.raises(UnknownConvention, match=expected):
        conventions_in("torch,mxnet")


# -- the members at any time ---------------------------------------------------------------------------------------


def pod(instance: int, run: int = 1, state: PodState = RUNNING, **more: object) -> GangPod:
    own: dict[str, Any] = {
        "hostname": f"h{instance % 2}",
        "address": "10.0.0.1",
        "ports": {"gang": 31_000 + instance},
    } | more
    return GangPod(instance, run, state, **own)


def test_extras_follow_the_gang_without_gaps() -> None:
    """A member keeps its rank while it does not run; extras are ranked among those that run."""
    pods = [pod(0), pod(1, state=PodState.STARTING), pod(2), pod(4, leaves=True), pod(7), pod(9)]
    seen = view_gang(Bounds(3, 10), pods, 100)

    assert [(0, True, 0), (1, False, 0), (2, True, 1), (3, True, 0), (4, True, 1)] == [
        (one.rank, one.is_live, one.local_rank) for one in seen.pods if one.instance_id != 4
    ]
    assert [False] == [one.is_live for one in seen.pods if one.instance_id == 4]
    assert ("10.0.0.1:31000", False) == (seen.coordinator.endpoint, seen.is_partial)


def test_the_generation_is_that_of_the_gang() -> None:
    """A gang that restarts has a new one as soon as a member waits for its next run; runs of extras do not count."""
    before = view_gang(BOUNDS, [pod(0), pod(1), pod(2), pod(3, run=9)], 100)
    lost = PodState.INITIALIZED
    after = view_gang(BOUNDS, [pod(0, leaves=True), pod(1, 2, lost, hostname=""), pod(2, leaves=True)], 100)

    assert (1, 2) == (before.generation, after.generation)
    assert [] == [one for one in after.pods if one.is_live]


def test_the_revision_changes_with_the_answer() -> None:
    """Equal answers have one revision; a state, an address or a bound makes another."""
    same, *others = (
        view_gang(bounds, [pod(0, **more)], 100).revision
        for bounds, more in (
            (BOUNDS, {}),
            (Bounds(3, 6), {}),
            (BOUNDS, {"run": 2}),
            (BOUNDS, {"state": PodState.KILLING}),
            (BOUNDS, {"leaves": True}),
            (BOUNDS, {"ports": {"gang": 1}}),
            (BOUNDS, {"address": "10.0.0.9"}),
        )
    )
    assert view_gang(BOUNDS, [pod(0)], 100).revision == same
    assert len({same, *others}) == 7


def test_the_answer_is_bounded() -> None:
    """Pods beyond the bound are left out, and the answer says so."""
    seen = view_gang(BOUNDS, map(pod, range(5)), 4)
    assert ([0, 1, 2, 3], True) == ([one.instance_id for one in seen.pods], seen.is_partial)
    assert NOWHERE == view_gang(BOUNDS, [pod(1)], 4).coordinator
