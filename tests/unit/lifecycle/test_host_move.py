"""Moves of hosts to other host pools: the changes of maintenance that carry out the assignment."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from peloton.lifecycle.host_move import MoveChanges, move_changes
from peloton.lifecycle.maintenance import Step, details, next_step
from peloton.model.host import HostState
from peloton.model.ids import Hostname
from peloton.model.maintenance import HostMaintenance

UP, DRAINING, DRAINED, DOWN = HostState.UP, HostState.DRAINING, HostState.DRAINED, HostState.DOWN
H = Hostname("h1")


def row(state: HostState = DRAINING, goal: HostState = DOWN, to_pool: str = "batch") -> HostMaintenance:
    return HostMaintenance("c", H, state, goal, to_pool=to_pool)


def changes(wanted: str, found: HostMaintenance | None, is_registered: bool = True) -> MoveChanges:
    """Return the changes. ``wanted``: the host pool to which the host is assigned; empty: its current one."""
    return move_changes({H: wanted} if wanted else {}, {H: found} if found else {}, [H] if is_registered else [])


def test_a_host_that_is_to_be_elsewhere_begins_to_move() -> None:
    """A host that is assigned elsewhere begins to move unless the cluster does not have it; a move under way
    continues.
    """
    assert MoveChanges(begin={H: "batch"}) == changes("batch", None)
    assert MoveChanges() == changes("batch", None, is_registered=False)
    assert MoveChanges() == changes("batch", row())
    assert MoveChanges() == changes("", None)


def test_a_move_follows_what_is_wanted() -> None:
    """A move follows a changed assignment, or ends; a host that comes back up is not changed."""
    assert MoveChanges(redirect={H: "gpu"}) == changes("gpu", row())
    assert MoveChanges(stay=(H,)) == changes("", row())
    assert MoveChanges() == changes("gpu", row(DRAINING, UP))
    assert MoveChanges() == changes("", row(DRAINED, UP))


def test_a_host_that_waits_takes_a_new_bound() -> None:
    """A waiting host is requested again with a new bound; one whose turn has come, or that has this bound, is not."""
    waiting = row(UP)

    def after(found: HostMaintenance, bounds: dict[Hostname, int]) -> MoveChanges:
        return move_changes({H: "batch"}, {H: found}, [H], bounds)

    assert MoveChanges(begin={H: "batch"}) == after(waiting, {H: 5})
    assert MoveChanges() == after(replace(waiting, at_most=5), {H: 5})
    assert MoveChanges() == after(replace(waiting, at_most=5), {})
    assert MoveChanges() == after(row(DRAINING), {H: 5})


def test_maintenance_comes_first() -> None:
    """A host that maintenance has emptied is in its new host pool at once; before that, and on its way up, it waits."""
    moved = MoveChanges(arrive={H: "batch"})
    found = {state: changes("batch", row(state, to_pool="")) for state in HostState}

    assert {UP: MoveChanges(), DRAINING: MoveChanges(), DRAINED: moved, DOWN: moved} == found


HOSTS = st.sampled_from([Hostname(f"h{at}") for at in range(4)])
POOLS = st.sampled_from(["", "batch", "gpu"])
ROWS = st.builds(lambda state, goal, pool: row(state, goal, pool), st.sampled_from(HostState), st.sampled_from([UP, DOWN]), POOLS)  # fmt: skip  # noqa: E501


@given(st.dictionaries(HOSTS, st.sampled_from(["batch", "gpu"])), st.dictionaries(HOSTS, ROWS), st.sets(HOSTS))
def test_following_twice_changes_nothing_more(
    wanted: dict[Hostname, str], rows: dict[Hostname, HostMaintenance], registered: set[Hostname]
) -> None:
    """A host is in one of the changes at most, and once they are made no changes are left."""
    rows = {host: replace(found, hostname=host) for host, found in rows.items()}
    due = move_changes(wanted, rows, registered)
    named = [*due.begin, *due.redirect, *due.stay, *due.arrive]
    assert sorted(set(named)) == sorted(named)

    rows |= {host: HostMaintenance("c", host, UP, DOWN, to_pool=pool) for host, pool in due.begin.items()}
    rows |= {host: replace(rows[host], to_pool=pool) for host, pool in due.redirect.items()}
    rows |= {host: replace(rows[host], goal=UP) for host in due.stay}
    still = {host: pool for host, pool in wanted.items() if host not in due.arrive}
    assert MoveChanges() == move_changes(still, rows, registered)


def test_a_host_that_moves_never_goes_down() -> None:
    """A move has the steps of maintenance, with the change of the host pool instead of the way down."""
    steps = [next_step(row(state)) for state in (UP, DRAINING, DRAINED)]

    assert [Step.CORDON, Step.DRAIN, Step.RELABEL] == steps
    assert Step.BRING_UP is next_step(row(DRAINED, UP))


def test_people_read_where_a_host_moves() -> None:
    """Details name the host pool before the host's turn, while it moves, and on its way back up."""
    assert "Host h1 is **UP**: it waits for its turn to move to host pool batch." == details(row(UP))
    assert "Host h1 is **DRAINED**: it moves to host pool batch." == details(row(DRAINED))
    assert "Host h1 is **DRAINED**: it comes back up." == details(row(DRAINED, UP))
