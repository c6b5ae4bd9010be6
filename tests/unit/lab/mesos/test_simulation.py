"""A simulation is a function of its seed and of names; its file is refused with file, field, rule and number."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.lab.mesos.agents.host_failures import FailingHosts
from services.lab.mesos.agents.task_info import labels_of, text_of, variables_of
from services.lab.shared.hosts import HostSpec
from services.lab.shared.simulation import behaviour
from services.lab.shared.simulation.description import load_simulation
from services.lab.shared.simulation.distributions import Distribution, Exponential, Fixed, Lognormal, Uniform, unit
from services.lab.shared.simulation.outcomes import (
    Failure,
    HostClass,
    HostFailures,
    ImageRule,
    RunTime,
    Simulation,
    When,
    class_sizes,
)
from services.lab.shared.yaml_rows import FileFault
from tests.unit.lab.mesos.conftest import Start
from tests.unit.lab.mesos.scheduler import task_info

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "simulation.yaml"

# Draws.

amounts = st.floats(0, 1e6)
distributions: st.SearchStrategy[Distribution] = st.one_of(
    st.builds(Fixed, amounts),
    st.tuples(amounts, amounts).map(lambda ends: Uniform(min(ends), max(ends))),
    st.builds(Exponential, st.floats(1e-6, 1e6), amounts),
    st.builds(Lognormal, st.floats(1e-6, 1e6), st.floats(0, 10), amounts),
)


def simulate_task(simulation: Simulation, host: HostSpec, task_id: str, task: dict[str, Any]) -> behaviour.Behaviour:
    command = task["command"]
    text = text_of(command)
    said = behaviour.behaviour(text, variables_of(command))
    return behaviour.simulate(said, simulation, host, task_id, text, labels_of(task))


@given(distributions, st.integers(), st.text(), st.text())
def test_a_draw_lies_within_its_distribution(distribution: Distribution, seed: int, name: str, other: str) -> None:
    """A draw lies within its distribution, and a greater share never has a smaller value."""
    shares = sorted((unit(seed, name), unit(seed, other)))
    low, high = (distribution.at(share) for share in shares)

    assert 0 < shares[0] <= shares[1] < 1
    assert distribution.least <= low <= high <= distribution.most


@pytest.mark.parametrize(
    ("distribution", "mean"), [(Uniform(2, 6), 4.0), (Exponential(5), 5.0), (Lognormal(3, 0.5), 3.4)], ids=str
)
def test_draws_have_the_mean_of_their_distribution(distribution: Distribution, mean: float) -> None:
    """Names that differ in one character are as good as chance."""
    drawn = [distribution.at(unit(1, "task", number)) for number in range(20_000)]

    assert mean == pytest.approx(sum(drawn) / len(drawn), rel=0.03)


# Outcomes.


def info(command: str = "sleep 10", **labels: str) -> dict[str, Any]:
    rows = [{"key": key, "value": value} for key, value in labels.items()]
    return {"command": {"value": command}, "labels": {"labels": rows}}


def outcomes(simulation: Simulation, tasks: list[str]) -> dict[str, tuple[float, ...]]:
    hosts = simulation.make_hosts(20)
    found: dict[str, tuple[float, ...]] = {}
    for task in tasks:
        plan = simulate_task(simulation, hosts[len(task) % 20], task, info(kind="train"))
        found[task] = (plan.seconds, plan.code, plan.signal)
    return found


def test_outcomes_do_not_depend_on_the_order_of_events() -> None:
    """The same seed and names give the same, another seed gives another."""
    simulation = load_simulation(EXAMPLE, 20)
    tasks = [f"job-{number}-1" for number in range(300)]
    shuffled = random.Random(3).sample(tasks, len(tasks))

    first = outcomes(simulation, tasks)
    assert first == outcomes(load_simulation(EXAMPLE, 20), shuffled)
    other = outcomes(Simulation(8, simulation.hosts, simulation.run_times, simulation.failures), tasks)
    assert 0 == sum(first[task] == other[task] for task in tasks)
    assert first["job-0-1"] != outcomes(simulation, ["job-0-2"])["job-0-2"]


def test_a_simulation_without_rules_changes_nothing() -> None:
    """The command alone decides without rules."""
    plan = simulate_task(Simulation(), HostSpec("h"), "t", info("sleep 3; exit 4"))

    assert (3.0, 4, 0) == (plan.seconds, plan.code, plan.signal)


def test_the_first_rule_that_fits_decides() -> None:
    """The first rule that matches all labels and the text of the command decides; the slowness of the host is added."""
    slow = HostClass("slow", HostSpec("slow"), slow=Fixed(2))
    rules = (
        RunTime(When((("kind", "a"), ("size", "b"))), seconds=Fixed(7)),
        RunTime(When((("kind", "a"),)), seconds=Fixed(5), times=Fixed(3)),
        RunTime(When(command="sleep"), times=Fixed(0.5)),
    )
    simulation = Simulation(hosts=(slow,), run_times=rules)
    host = simulation.make_hosts(1)[0]

    def seconds(task: dict[str, Any]) -> float:
        return simulate_task(simulation, host, "t", task).seconds

    assert 14 == seconds(info(kind="a", size="b"))
    assert 30 == seconds(info(kind="a"))
    assert 10 == seconds(info(kind="b"))
    assert 0 == seconds(info("true"))


def test_a_failure_ends_a_task_early() -> None:
    """A task fails after a share of its run time, with an exit code or by a signal, at the given probability."""
    simulation = Simulation(failures=(Failure(probability=0.25, signal=9, at=Fixed(0.5)),))
    plans = [
        simulate_task(simulation, HostSpec("h"), f"t-{number}", info("sleep 8; exit 2")) for number in range(4_000)
    ]

    assert {(4.0, 9), (8.0, 0)} == {(plan.seconds, plan.signal) for plan in plans}
    assert 1_000 == pytest.approx(sum(plan.signal == 9 for plan in plans), rel=0.1)
    assert {1, 2} == {plan.code for plan in plans}


def test_an_image_has_one_size_and_a_host_its_bandwidth() -> None:
    """The download takes size over bandwidth, longer on slow hosts; other images take the time of the settings."""
    fast = HostClass("fast", HostSpec("fast"), bandwidth_mb_s=100)
    slow = HostClass("slow", HostSpec("slow"), slow=Fixed(3))
    rule = ImageRule("web", size_mb=Uniform(100, 900), bandwidth_mb_s=10)
    simulation = Simulation(5, (fast, slow), images=(rule,))
    on_fast, on_slow = simulation.make_hosts(2)

    size = simulation.download_s(on_fast, "web:1", 99) * 100
    assert 100 <= size <= 900
    assert 3 * size / 10 == pytest.approx(simulation.download_s(on_slow, "web:1", 99))
    assert size != simulation.download_s(on_fast, "web:2", 99) * 100
    assert (99, 297) == tuple(simulation.download_s(host, "db", 99) for host in (on_fast, on_slow))


# Hosts.


@given(
    st.lists(st.tuples(st.none() | st.integers(0, 30), st.floats(0, 10)), min_size=1, max_size=6), st.integers(1, 99)
)
def test_classes_share_all_hosts(rows: list[tuple[int | None, float]], count: int) -> None:
    """Counts are exact, shares are within one host; numbers that exceed the hosts are rejected."""
    classes = [HostClass(str(n), HostSpec("h"), count, share) for n, (count, share) in enumerate(rows)]
    counted = sum(count or 0 for count, _ in rows)
    total = sum(share for count, share in rows if count is None)
    if counted > count or (counted < count and not total):
        with pytest.raises(ValueError, match=f"add up to {counted}"):
            class_sizes(classes, count)
        return
    sizes = class_sizes(classes, count)

    assert count == sum(sizes)
    for size, (own, share) in zip(sizes, rows, strict=True):
        assert size == own if own is not None else abs(size - (count - counted) * share / (total or 1)) < 1


def test_attributes_are_distributed_in_turns() -> None:
    """Hosts with the same ones share them."""
    hosts = load_simulation(EXAMPLE, 50).make_hosts(50)
    racks = [host.attributes["rack"] for host in hosts]

    assert ["r1", "r2", "r3", "r1"] == racks[:4]
    assert {"r1": 12, "r2": 12, "r3": 11, "r4": 10, "r5": 5} == {rack: racks.count(rack) for rack in set(racks)}
    assert 5 == len({id(host.attributes) for host in hosts})
    assert [f"sim-{number:05d}" for number in range(50)] == [host.name for host in hosts]


@pytest.mark.parametrize("keeps_tasks", [False, True])
async def test_hosts_fail_and_come_back(start: Start, keeps_tasks: bool) -> None:
    """Hosts fail repeatedly, with their pods or the agent alone. Hosts of another class stay."""
    failures = HostFailures(every_s=Fixed(0.0), repair_s=Fixed(0.5), keeps_tasks=keeps_tasks)
    shaky = HostClass("shaky", HostSpec("s", cpus=4, mem=1024), 1, failures=failures)
    simulation = Simulation(hosts=(shaky, HostClass("steady", HostSpec("t", cpus=0.1, mem=64), 1)))
    hosts = simulation.make_hosts(2)
    cluster, scheduler = await start(simulate=True, hosts=hosts, agent_timeout_s=0.1)
    shaky_agent, _ = cluster.master.registry.by_host.values()
    offer = await scheduler.offer(shaky_agent.spec.name)
    await scheduler.accept(offer, task_info("t", shaky_agent.id, "sleep 1000"))
    await scheduler.status("t", "TASK_RUNNING")

    master = cluster.master
    FailingHosts(simulation, cluster.clock, master.registry, master.agents, master.maintenance).start()

    await scheduler.status("t", "TASK_UNREACHABLE")
    after = "TASK_RUNNING" if keeps_tasks else "TASK_FAILED"
    await scheduler.wait(lambda _: after in scheduler.states("t")[scheduler.states("t").index("TASK_UNREACHABLE") :])
    await scheduler.wait(lambda _: sum(event["type"] == "FAILURE" for event in scheduler.events) >= 3)
    failed = [event["failure"]["agent_id"]["value"] for event in scheduler.events if event["type"] == "FAILURE"]
    assert {shaky_agent.id} == set(failed)


# The file.


def fault(tmp_path: Path, text: str, count: int = 10) -> str:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(FileFault) as caught:
        load_simulation(path, count)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seed: x", "seed: must be a whole number from -9.0072e+15 to 9.0072e+15, got 'x'"),
        ("speed: 1", "unknown field 'speed'; the fields are seed, hosts, run_times, failures, images"),
        ("[]", "expected a mapping with some of seed, hosts, run_times, failures, images, got []"),
        ("hosts: {}", "hosts: must be a list, got {}"),
        ("hosts: [{share: 1}]", "hosts[0].name: must be a text that is not empty, got None"),
        ("hosts: [{name: a, cpus: -1}]", "hosts[0].cpus: must be a number from 0 to 1e+12, got -1"),
        ("hosts: [{name: a, count: 11}]", "hosts: the counts add up to 11, more than the 10 simulated hosts"),
        (
            "hosts: [{name: a, count: 4}]",
            "hosts: the counts add up to 4 of 10 simulated hosts, and no class has a share",
        ),
        ("hosts: [{name: a}, {name: a}]", "hosts: 2 classes have the name 'a'"),
        ("hosts: [{name: a, count: 1, share: 1}]", "hosts[0]: count and share exclude each other"),
        ("hosts: [{name: a, slow: 0}]", "hosts[0].slow: 0 to 0 is not within 0.001 to 1e+06"),
        ("hosts: [{name: a, ports: 9-1}]", "hosts[0].ports: must be BEGIN-END within 1-65535, got '9-1'"),
        (
            "hosts: [{name: a, attributes: {rack: [{}]}}]",
            "hosts[0].attributes.rack: must be a text, a number or a list of them, got [{}]",
        ),
        (
            "hosts: [{name: a, failures: {every_s: 5}}]",
            "hosts[0].failures.repair_s: must be a number or one of uniform: [LOW, HIGH]; exponential: {mean, max}; "
            "lognormal: {median, sigma, max}, got None",
        ),
        (
            "hosts: [{name: a, failures: {every_s: {exponential: {mean: -1}}, repair_s: 1}}]",
            "hosts[0].failures.every_s.exponential.mean: must be a number from 1e-06 to 1e+09, got -1",
        ),
        ("run_times: [{seconds: .nan}]", "run_times[0].seconds: must be a number from -inf to inf, got nan"),
        ("run_times: [{seconds: .inf}]", "run_times[0].seconds: inf to inf is not within 0 to 1e+09"),
        (
            "run_times: [{seconds: 1}, {times: {uniform: [3, 2]}}]",
            "run_times[1].times.uniform.high: must be a number from 3 to inf, got 2",
        ),
        ("run_times: [{times: {uniform: 3}}]", "run_times[0].times: must be uniform: [LOW, HIGH], got {'uniform': 3}"),
        ("run_times: [{when: {label: a}}]", "run_times[0].when: unknown field 'label'; the fields are labels, command"),
        ("run_times: [{when: {labels: {a: 1}}}]", "run_times[0].when.labels.a: must be a text, got 1"),
        ("failures: [{exit_code: 1}]", "failures[0].probability: must be a number from 0 to 1, got None"),
        ("failures: [{probability: 2}]", "failures[0].probability: must be a number from 0 to 1, got 2"),
        (
            "failures: [{probability: 1, exit_code: 1, signal: 9}]",
            "failures[0]: exit_code and signal exclude each other",
        ),
        ("failures: [{probability: 1, at: 1.5}]", "failures[0].at: 1.5 to 1.5 is not within 0 to 1"),
        (
            "failures: [{probability: 1, exit_code: 0}]",
            "failures[0].exit_code: must be a whole number from 1 to 255, got 0",
        ),
        ("images: [{seconds: 1, size_mb: 2}]", "images[0]: seconds and size_mb exclude each other"),
        (
            "images: [{size_mb: 2}]",
            "images[0].bandwidth_mb_s: must be a number next to size_mb; a class of hosts may have its own, got None",
        ),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    """A malformed file is rejected with file, field, rule and number."""
    assert expected == fault(tmp_path, text)


def test_what_is_no_yaml_is_refused(tmp_path: Path) -> None:
    """A file that is no YAML, or missing, is rejected."""
    assert fault(tmp_path, "hosts: [").startswith("not valid YAML: ")
    with pytest.raises(FileFault, match=r"cannot be read: .*No such file"):
        load_simulation(tmp_path / "none.yaml", 1)
