"""Free resources for pods that are only planned: drawings, and a later placement to compare with.

REWRITE=1 in the environment redraws the expected tables; read the difference before you keep it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.model.host import HostLease, LeasedHost, ReadyGang
from peloton.model.ids import Hostname, JobId
from peloton.model.planned_capacity import PlannedPods
from peloton.model.pod import PodShape, Strategy
from peloton.model.resources import Resources
from peloton.scheduling.capacity import find_capacity
from peloton.scheduling.fleet import Fleet
from peloton.scheduling.placement import place
from peloton.scheduling.rows import LEASED, READY, HostRow
from peloton.scheduling.trial import TrialFleet
from tests.unit.scheduling.capacity_table import CapacityScenario
from tests.unit.scheduling.pool_table import Scenario

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("room_*.txt"))
JOB = JobId("planned")


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    """Expected counts and rules of the drawing are found for its hosts and pods."""
    scenario = Scenario.parse(path.read_text())

    drawn = CapacityScenario(scenario).draw()

    if os.environ.get("REWRITE"):
        path.write_text(scenario.text(drawn))
    assert Scenario.parse(path.read_text()).expected == drawn


def test_there_are_scenarios() -> None:
    """The folder has at least 9 scenarios."""
    assert len(SCENARIOS) >= 9


def host(number: int, cpu: int, state: int = READY) -> HostRow:
    amounts = Resources(cpu * 1000), Resources(8000)
    return HostRow(Hostname(f"h{number}"), *amounts, 0, 9, 99, (), number, state)


def test_extended_resources_of_hosts_put_later_are_found() -> None:
    """A copy of a fleet gets columns for the kinds of hosts that are put into it later, and changes nothing of it."""
    fleet = Fleet([host(0, 8)])
    trial = TrialFleet(fleet)
    with_tapes = replace(Resources(8_000), extended=(("tapes", 3),))
    trial.put_hosts([host(1, 8)._replace(free=with_tapes, total=with_tapes), host(2, 8)])
    asked = PodShape(replace(Resources(1_000), extended=(("tapes", 1),)))

    (found,) = find_capacity(trial, [PlannedPods(asked, 5)], {})

    assert found.count == 3
    assert sum(hosts.host_count for hosts in found.refusing) == 3
    assert fleet.count_fits(asked, fleet.rows([Hostname("h0")])).tolist() == [0]


SHAPES = [PodShape(Resources(cpu * 1000), strategy=each) for cpu in (1, 2, 3) for each in Strategy]
PODS = st.lists(st.tuples(st.sampled_from(SHAPES), st.integers(1, 9)), min_size=1, max_size=3, unique_by=lambda p: p[0])


@given(cpus=st.lists(st.integers(0, 8), min_size=1, max_size=6), pods=PODS, size=st.integers(0, 5))
def test_placement_finds_what_was_planned(cpus: list[int], pods: list[tuple[PodShape, int]], size: int) -> None:
    """A placement puts as many pods of a gang and of other shapes as the plan had found, when no host changes
    meanwhile, and each host is reported once.
    """
    gang = PodShape(Resources(2000))
    asked = [PlannedPods(gang, size, is_gang=True)] if size > 1 else []
    asked += [PlannedPods(shape, count) for shape, count in pods]
    found = find_capacity(Fleet(host(number, cpu) for number, cpu in enumerate(cpus)), asked, {})

    hosts = tuple(
        LeasedHost(Hostname(f"h{number}"), Resources(cpu * 1000), Resources(), capacity=Resources(8000))
        for number, cpu in enumerate(cpus)
    )
    gangs = [ReadyGang(gang, tuple((900 + member, 1) for member in range(size)))] if size > 1 else []
    gangs += [
        ReadyGang(shape, ((100 * at + number, 1),)) for at, (shape, count) in enumerate(pods) for number in range(count)
    ]
    placed = place(JOB, gangs, HostLease("all", hosts))
    assert placed.placed_count == sum(fit_counts.count for fit_counts in found)
    for fit_counts, each in zip(found, asked, strict=True):
        reported = sum(one.host_count for one in fit_counts.refusing)
        assert reported == (0 if fit_counts.count == each.count else len(cpus))


def test_a_trial_leaves_the_hosts_as_they_are() -> None:
    """A trial uses leased resources as free ones; its placed pods and added hosts are not in the fleet itself."""
    fleet = Fleet([host(0, 4), host(1, 4, LEASED)])
    wanted = [PlannedPods(PodShape(Resources(2000)), 9)]

    trial = TrialFleet(fleet)
    trial.put_hosts([host(2, 4)._replace(kind=(("rack", "new"),))])
    assert [6] == [fit_counts.count for fit_counts in find_capacity(trial, wanted, {})]

    assert 2 == len(fleet)
    assert [2] == [fit_counts.count for fit_counts in find_capacity(fleet, wanted, {})]
