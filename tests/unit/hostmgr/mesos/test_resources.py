"""Resources that a task takes from offers."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from peloton.model.resources import LEAST_CPU_MILLI, Resources
from services.hostmgr.mesos.resources import OfferedResources


def scalar(name: str, value: float, **rest: Any) -> dict[str, Any]:
    return {"name": name, "type": "SCALAR", "scalar": {"value": value}, **rest}


def pot(*entries: dict[str, Any]) -> OfferedResources:
    made = OfferedResources({"web"})
    made.add(entries)
    return made


def amounts(taken: list[dict[str, Any]] | None) -> list[tuple[str, float]]:
    return [(t["name"], t["scalar"]["value"]) for t in taken or []]


def test_a_task_takes_what_it_asks_from_several_entries() -> None:
    """Entries of one kind are used in order, and keep their own role."""
    offered = pot(scalar("cpus", 1.0, role="*"), scalar("cpus", 2.0, role="web"), scalar("mem", 100))

    taken = offered.take(Resources.of(2.5, 64), revocable=False, ports=())

    assert [("cpus", 1.0), ("cpus", 1.5), ("mem", 64.0)] == amounts(taken)
    assert ["*", "web"] == [t["role"] for t in taken or [] if t["name"] == "cpus"]


def test_extended_scalars_are_counted_whole_and_taken() -> None:
    """Any scalar of an agent is an extended resource, in whole numbers and with a prefix; a license is of no host."""
    offered = pot(
        scalar("cpus", 1.0),
        scalar("tapes", 2.5),
        scalar("tapes", 1.0, role="web"),
        scalar("license/x", 9),
        scalar("x.org/a", 1),
    )
    assert (("mesos/tapes", 3), ("x.org/a", 1)) == offered.total(revocable=False).extended
    assert () == offered.total(revocable=True).extended

    asked = Resources(1_000, extended=(("license/x", 1), ("mesos/tapes", 3), ("x.org/a", 1)))

    taken = offered.take(asked, revocable=False, ports=())

    assert [("cpus", 1.0), ("tapes", 2.5), ("tapes", 0.5), ("x.org/a", 1.0)] == amounts(taken)
    assert offered.take(Resources(0, extended=(("mesos/tapes", 1),)), revocable=False, ports=()) is None


def test_what_does_not_fit_takes_nothing() -> None:
    """A refusal leaves the pot as it was."""
    offered = pot(scalar("cpus", 1.0), scalar("mem", 10))

    assert offered.take(Resources.of(0.5, 64), revocable=False, ports=()) is None
    assert Resources(1_000, 10) == offered.total(revocable=False)


def test_revocable_cpu_is_kept_apart() -> None:
    """A revocable task takes revocable cpu only, and ordinary memory."""
    offered = pot(scalar("cpus", 1.0), scalar("cpus", 4.0, revocable={}), scalar("mem", 100))

    taken = offered.take(Resources.of(2.0, 50), revocable=True, ports=())

    assert [("cpus", 2.0), ("mem", 50.0)] == amounts(taken)
    assert Resources(1_000, 50) == offered.total(revocable=False)


def test_a_task_without_resources_takes_the_least_mesos_accepts() -> None:
    """Mesos answers TASK_ERROR to a task without resources."""
    taken = pot(scalar("cpus", 1.0)).take(Resources(), revocable=False, ports=())

    assert [("cpus", LEAST_CPU_MILLI / 1000)] == amounts(taken)


def test_assigned_ports_are_named_and_foreign_ports_refused() -> None:
    """Each port becomes a range of one; a port that is not on offer refuses the task."""
    ports = {"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": 31_000, "end": 31_005}]}}
    offered = pot(scalar("cpus", 1.0), ports)

    taken = offered.take(Resources.of(0.1), revocable=False, ports=(31_002, 31_001)) or []

    assert [{"begin": 31_001, "end": 31_001}, {"begin": 31_002, "end": 31_002}] == taken[-1]["ranges"]["range"]
    assert offered.take(Resources.of(0.1), revocable=False, ports=(80,)) is None


@given(st.lists(st.integers(1, 4_000), max_size=6), st.lists(st.integers(1, 3_000), max_size=8))
def test_tasks_never_take_more_than_was_offered(offered_milli: list[int], asked_milli: list[int]) -> None:
    """Taken and remaining resources add up to the offer, to the thousandth."""
    offered = pot(*(scalar("cpus", milli / 1000) for milli in offered_milli))
    taken_milli = 0
    for milli in asked_milli:
        if taken := offered.take(Resources(milli), revocable=False, ports=()):
            taken_milli += sum(round(t["scalar"]["value"] * 1000) for t in taken)

    assert sum(offered_milli) == taken_milli + offered.total(revocable=False).cpu_milli
