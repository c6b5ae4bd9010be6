"""Marks of hosts and services as samples and reports come in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from peloton.errors import Unavailable
from peloton.model.advice import HostMark, LatencyBounds, Mark, PodLatency, ServiceMark
from peloton.model.ids import Hostname, JobId, PodName, RespoolId
from peloton.model.job import JobRecord, JobState, JobType, SlaSpec
from peloton.model.resources import Resources
from peloton.scheduling.advice import AdvicePolicy
from services.hostmgr.advisor import AdvisorSettings, HostAdvisor
from services.hostmgr.driver import RegisteredHost, UseSample
from services.hostmgr.host_samples import HOSTS_PER_ROUND_MAX, HostSample, HostSamples
from services.hostmgr.host_use import HostUse, next_use
from services.hostmgr.latency_reports import LatencyReports

H1, H2 = Hostname("h1"), Hostname("h2")
WEB, BATCH = JobId("91b1b8e5-2ba8-41e7-bc23-0242ac11000a"), JobId("91b1b8e5-2ba8-41e7-bc23-0242ac11000b")
CAPACITY = Resources.of(4, 1_000)
ROUND_S = 10.0
FAST, SLOW = PodLatency(1, 2, 3, 100), PodLatency(1, 2, 881, 100)


def a_host(name: str, revocable: float = 0.0) -> RegisteredHost:
    held = Resources.of(revocable)
    return RegisteredHost("id", Hostname(name), "", CAPACITY, held, {}, held)


class Jobs:
    def __init__(self) -> None:
        self.jobs: dict[JobId, JobRecord] = {}
        self.asked: list[set[JobId]] = []
        self.is_unavailable = False

    def add(self, job_id: JobId, type_: JobType = JobType.SERVICE, **labels: str) -> None:
        named = tuple((f"peloton/{key.replace('_', '-')}", value) for key, value in labels.items())
        state = JobState.RUNNING
        self.jobs[job_id] = JobRecord(
            job_id, "web", type_, "", RespoolId("p"), 2, SlaSpec(), state, state, labels=named
        )

    def get_many(self, job_ids: Iterable[JobId]) -> list[JobRecord]:
        if self.is_unavailable:
            raise Unavailable("the database is away")
        self.asked.append(set(job_ids))
        return [self.jobs[job_id] for job_id in job_ids if job_id in self.jobs]


class Story:
    """A series of rounds, one each 10 s."""

    def __init__(self) -> None:
        self.now_s, self.jobs = 0.0, Jobs()
        self.reports = LatencyReports(lambda: self.now_s)
        policy = AdvicePolicy(bounds=LatencyBounds(p99_red_ms=500), sample_count=2, hold_s=20.0)
        self.noted: list[tuple[str, Mark, Mark, str]] = []
        self.advisor = HostAdvisor(
            AdvisorSettings(policy),
            self.jobs,
            self.reports,
            lambda: round(self.now_s * 1e9),
            lambda *one: self.noted.append(one),
        )
        self.uses: dict[Hostname, HostUse] = {}

    def round(self, **cpus: float | None) -> None:
        """Run a round with the given cpu usage by host name, or None for a host without pods."""
        self.now_s += ROUND_S
        looks = []
        for name, cpu in cpus.items():
            samples = [] if cpu is None else [UseSample("pod", None, cpu * self.now_s, self.now_s, 100)]
            self.uses[Hostname(name)] = use = next_use(self.uses.get(Hostname(name), HostUse()), samples)
            looks.append(HostSample(a_host(name), use))
        self.advisor.take_samples(looks, self.uses.keys(), self.now_s)

    def report(self, job_id: JobId, *latencies: PodLatency) -> None:
        self.reports.take({PodName(job_id, at): latency for at, latency in enumerate(latencies)})

    def hosts(self) -> dict[Hostname, Mark]:
        return {one.hostname: one.mark for one in self.advisor.host_marks()}

    def services(self) -> dict[JobId, Mark]:
        return {one.job_id: one.mark for one in self.advisor.service_marks()}


def test_a_host_is_marked_by_its_use() -> None:
    """The mark has the time of the round in which it rose or fell; a host that is gone has none."""
    story = Story()
    for _ in range(4):
        story.round(h1=3.8, h2=0.4)
    red = HostMark(H1, Mark.RED, 30_000_000_000, "cpu 95 %, red from 90 %")
    assert [red, HostMark(H2, Mark.GREEN, 20_000_000_000, "cpu 10 %; memory 10 %")] == story.advisor.host_marks()
    for _ in range(3):
        story.round(h1=None)
    assert HostMark(H1, Mark.GREEN, 70_000_000_000, "cpu 0 %; memory 0 %") == story.advisor.host_marks()[0]
    del story.uses[H1]
    story.round()
    assert {H2: Mark.GREEN} == story.hosts()
    assert [
        (H1, Mark.RED, Mark.GREEN, "cpu 95 %, red from 90 %"),
        (H1, Mark.GREEN, Mark.RED, "cpu 0 %; memory 0 %"),
    ] == story.noted, "changes are noted, first marks and repeated ones are not"


def test_a_sample_that_says_nothing_new_counts_as_none() -> None:
    """A host whose agent repeats itself is not hot for longer."""
    story = Story()
    story.round(h1=3.8)
    story.round(h1=3.8)
    use = next_use(story.uses[H1], [UseSample("pod", None, 1.0, 1.0, 100)])
    for _ in range(5):
        story.advisor.take_samples([HostSample(a_host("h1"), use)], [H1], story.now_s)

    assert {H1: Mark.GREEN} == story.hosts()


def test_a_service_is_marked_by_the_reports_of_its_pods() -> None:
    """The labels of a service set its limits, else the settings do. Its jobs are read once a minute, and its mark is
    removed with its reports.
    """
    story = Story()
    story.jobs.add(WEB, p99_red_ms="300", p99_orange_ms="100")
    for _ in range(2):
        story.report(WEB, SLOW, FAST)
        story.round()
    reason = "p99 442 ms, red from 300 ms"
    assert [ServiceMark(WEB, Mark.RED, 20_000_000_000, reason)] == story.advisor.service_marks()
    assert [{WEB}] == story.jobs.asked
    story.jobs.add(WEB)
    for _ in range(8):
        story.report(WEB, SLOW, FAST)
        story.round()
    assert ({WEB: Mark.GREEN}, [{WEB}, {WEB}]) == (story.services(), story.jobs.asked)
    for _ in range(6):
        story.round()
    assert {} == story.services()


def test_rounds_without_a_report_count_for_nothing() -> None:
    """A round without a report moves a mark neither up nor down."""
    story = Story()
    story.jobs.add(WEB)
    story.report(WEB, SLOW)
    for _ in range(5):
        story.round()
    assert {WEB: Mark.GREEN} == story.services()


def test_pods_that_no_service_has_are_left_out() -> None:
    """Instances beyond the job's count, jobs of other types, and unknown jobs are left out and removed at once."""
    story = Story()
    story.jobs.add(WEB)
    story.jobs.add(BATCH, JobType.BATCH)
    for _ in range(2):
        story.report(WEB, FAST, FAST, SLOW, SLOW)
        story.report(BATCH, SLOW)
        story.report(JobId("91b1b8e5-2ba8-41e7-bc23-0242ac11000c"), SLOW)
        story.round()

    assert ({WEB: Mark.GREEN}, {WEB}) == (story.services(), story.reports.jobs())


def test_hosts_are_marked_while_storage_is_away() -> None:
    """Hosts are marked while storage is unavailable, and services again when it is back."""
    story = Story()
    story.jobs.add(WEB)
    story.jobs.is_unavailable = True
    for _ in range(3):
        story.report(WEB, SLOW)
        with pytest.raises(Unavailable):
            story.round(h1=4.0)
    assert {H1: Mark.RED} == story.hosts()
    story.jobs.is_unavailable = False
    for _ in range(2):
        story.report(WEB, SLOW)
        story.round()
    assert {WEB: Mark.RED} == story.services()


class Cluster:
    """A cluster of hosts and their statistics."""

    def __init__(self, hosts: list[RegisteredHost]) -> None:
        self.hosts, self.asked = hosts, Counter[Hostname]()
        self.cache = self.driver = self.capabilities = self
        self.measures_use = True

    def revocable_holders(self, with_others: bool = False) -> list[RegisteredHost]:
        return [host for host in self.hosts if with_others or host.revocable_held.cpu_milli]

    def samples_of(self, hostname: Hostname) -> list[UseSample]:
        self.asked[hostname] += 1
        if hostname == "broken":
            raise OSError("away")
        return [UseSample("pod", None, 1.0, float(self.asked[hostname]), 64)]


def samples(hosts: list[RegisteredHost], has_all: bool = True) -> tuple[Cluster, HostSamples]:
    cluster: Any = Cluster(sorted(hosts, key=lambda host: host.hostname))
    return cluster, HostSamples(cluster, [], 1.0, has_all)


def test_only_hosts_with_revocable_pods_are_measured_unless_all_are_to_be() -> None:
    """Hosts without revocable pods are measured only if the setting says so; a host that does not
    answer is left out.
    """
    hosts = [a_host("a"), a_host("b", revocable=1.0), a_host("broken")]
    for has_all, expected in ((False, {"b"}), (True, {"a", "b"})):
        _, measured = samples(hosts, has_all)
        assert expected == {each.host.hostname for each in measured.measure()} == set(measured.uses())
        measured.stop()


@pytest.mark.parametrize(("holders", "others"), [(300, 500), (1_000, 1_000), (1_000, 10), (0, 900), (450, 0)])
def test_a_round_is_bounded_and_all_have_their_turn(holders: int, others: int) -> None:
    """A round measures a limited number of hosts; hosts with and without revocable pods all have their turn."""
    hosts = [a_host(f"r{at:05}", revocable=1.0) for at in range(holders)] + [
        a_host(f"o{at:05}") for at in range(others)
    ]
    cluster, measured = samples(hosts)
    for count in range(1, 6):
        measured.measure()
        assert cluster.asked.total() == min(HOSTS_PER_ROUND_MAX, len(hosts)) * count
    for sort, of_sort in (("r", holders), ("o", others)):
        counts = Counter({name: times for name, times in cluster.asked.items() if name[0] == sort})
        assert min(of_sort, HOSTS_PER_ROUND_MAX // 2 * 5) <= len(counts) <= of_sort
    measured.stop()
