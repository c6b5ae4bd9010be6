"""The order in which hosts leave a host pool, and their number."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.model.host_pool import Occupancy
from peloton.model.ids import Hostname
from peloton.scheduling.host_pools import Sizes, count_to_move, leaving_order


def host(
    name: str, pods: int = 0, bound: int = 0, controllers: int = 0, priority: int = 0, run_s: int = 0
) -> Occupancy:
    return Occupancy(Hostname(name), pods, bound, controllers, priority, run_s)


def test_hosts_leave_on_which_the_least_is_lost() -> None:
    """Idle hosts leave first, then hosts by controllers, pods, mean priority and mean run time, and at last by name."""
    hosts = [
        host("young", pods=2, priority=4, run_s=10),
        host("idle"),
        host("controller", pods=1, controllers=1),
        host("bound", pods=1, bound=1),
        host("urgent", pods=2, priority=6),
        host("few", pods=1, priority=99, run_s=999),
        host("b", pods=2, priority=4, run_s=30),
        host("a", pods=2, priority=4, run_s=30),
    ]

    assert ["idle", "few", "young", "a", "b", "urgent", "controller"] == leaving_order(hosts)


NUMBERS = st.integers(0, 5)
HOSTS = st.lists(
    st.builds(host, st.text("ab", min_size=1), NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    unique_by=lambda each: each.hostname,
)


@given(HOSTS, st.randoms())
def test_the_order_is_the_same_however_hosts_are_listed(hosts: list[Occupancy], random: Random) -> None:
    """The order has exactly the hosts without pods that may not be preempted, and no busy host before an idle one."""
    order = leaving_order(hosts)
    shuffled = list(hosts)
    random.shuffle(shuffled)

    assert order == leaving_order(shuffled)
    assert {each.hostname for each in hosts if not each.unpreemptible_count} == set(order)
    by_name = {each.hostname: each for each in hosts}
    is_busy = [by_name[name].pod_count + by_name[name].controller_count > 0 for name in order]
    assert sorted(is_busy) == is_busy


KNOWN = ["shared", "stateless", "default"]
SIZES: dict[str, tuple[tuple[str, int, int], tuple[str, int, int], int, str]] = {
    "as many as it takes": (("shared", 5, 3), ("stateless", 1, 3), 2, ""),
    "large enough": (("shared", 5, 3), ("stateless", 3, 3), 0, ""),
    "larger": (("shared", 5, 3), ("stateless", 4, 3), 0, ""),
    "unknown source": (("x", 5, 3), ("stateless", 1, 3), 0, "there is no host pool x"),
    "unknown destination": (("shared", 5, 3), ("", 0, 2), 0, "there is no host pool without a name"),
    "another source": (
        ("default", 5, 3), ("stateless", 1, 3), 0, "hosts are taken from host pool shared only, not from default",
    ),
    "nothing to give": (("shared", 3, 3), ("stateless", 1, 3), 0, "host pool shared has 3 hosts and shall have 3"),
    "unequal": (
        ("shared", 5, 4), ("stateless", 1, 3), 0,
        "host pool shared has 1 hosts more than it shall have, stateless 2 fewer: the numbers must be equal",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("source", "destination", "count", "refusal"), SIZES.values(), ids=SIZES.keys())
def test_sizes(source: tuple[str, int, int], destination: tuple[str, int, int], count: int, refusal: str) -> None:
    """Impossible numbers are refused with a reason, in the order of the original's checks."""
    assert (count, refusal) == count_to_move(Sizes(*source), Sizes(*destination), KNOWN)
