"""Stories of daemons in virtual time."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from peloton.model.ids import Hostname, JobId, daemon_workflow_id, job_workflow_id
from peloton.model.pod import ON_HOST, PodRecord, PodState
from services.worker.worker import activities_on
from tests.waiting import Condition
from tests.workflow.clock import VirtualClock
from tests.workflow.cluster import Cluster
from tests.workflow.followed import FollowedHosts
from tests.workflow.stories import JOB, ports_on
from tests.workflow.virtual import Fault, Virtual
from workflows.daemon import DaemonWorkflow
from workflows.job import JobInput, JobWorkflow
from workflows.policies import Policies

FOR_EVER_S = 1e9
SLACK_S = 30.0


class Story:
    """A daemon, its hosts, its two workflows, one clock."""

    def __init__(self, hosts: int = 4, per_step: int = 1_000, **policies: Any) -> None:
        self.clock = VirtualClock()
        self.cluster = Cluster(self.clock, hosts=hosts, run_s=FOR_EVER_S)
        self.hosts = FollowedHosts(self.cluster, per_step)
        activities = activities_on(ports_on(self.cluster, daemons=self.hosts), self.clock.now_ns)
        self.job = Virtual(
            self.clock,
            JobWorkflow,
            activities,
            signal="changed",
            children=[DaemonWorkflow],
            workflow_id=job_workflow_id(JOB),
        )
        self.cluster.lifecycles = self.job
        self.hosts.notify = self._notify
        self.hosts.submit(JOB)
        self.job.start(JobInput(JOB, Policies(**policies)))

    def _notify(self, job_id: JobId) -> None:
        """Notifies the daemon as host managers do. A daemon that has not started reads its hosts when it starts."""
        if daemon_workflow_id(job_id) in self.job.children:
            self.daemon.jobs_changed([job_id])

    def until(self, fact: Condition) -> Story:
        self.job.run(until=fact)
        assert not self.job.ended
        return self

    def until_running(self, count: int) -> Story:
        return self.until(lambda: self.running == count and sum(self.counts.values()) == len(self.hosts.seats))

    def stop(self) -> tuple[str, dict[str, int]]:
        """Stop the daemon and runs both workflows to their end."""
        self.cluster.kill(JOB)
        result = self.job.run()
        assert self.job.failure is None, self.job.failure
        if not self.daemon.ended:  # it may outlive the job by one step
            self.daemon.signal_now()
        while not self.daemon.ended:
            assert self.clock.step()
        assert self.daemon.failure is None, self.daemon.failure
        self.cluster.validate()
        return result.state, result.counts

    @property
    def daemon(self) -> Virtual:
        child = self.job.children[daemon_workflow_id(JOB)]
        assert isinstance(child, Virtual)
        return child

    @property
    def counts(self) -> dict[str, int]:
        return self.cluster.counts(JOB)

    @property
    def gone(self) -> int:
        """Number of instances whose hosts have left."""
        return sum(bool(seat.gone_ns) for seat in self.hosts.seats.values())

    @property
    def on_hosts(self) -> list[PodRecord]:
        return [pod for pod in self.cluster.jobs[JOB].pods if pod.state in ON_HOST]

    @property
    def never_twice(self) -> bool:
        """True; an error when a host has two of its pods."""
        hosts = [pod.host for pod in self.on_hosts]
        assert len(set(hosts)) == len(hosts), hosts
        return True

    @property
    def running(self) -> int:
        return self.counts.get("RUNNING", 0)


def names(*numbers: int) -> list[Hostname]:
    return [Hostname(f"host{number}") for number in numbers]


def test_a_daemon_runs_on_each_host_until_it_is_stopped() -> None:
    """A daemon runs without a queue and without a lease; no event follows its end."""
    story = Story(4).until_running(4)
    assert 4 == len({pod.host for pod in story.cluster.jobs[JOB].pods})
    assert (0, 0) == (story.cluster.calls["enqueue"], story.cluster.calls["acquire_hosts"])
    assert ("KILLED", {"KILLED": 4}) == story.stop()


def test_hosts_that_join_and_come_back_get_their_pods() -> None:
    """A host that left ends its pod, and the same instance runs on it again when it is back."""
    story = Story(4)
    story.hosts.match(JOB, names(0, 1))
    story.until_running(2)
    story.hosts.match(JOB, names(0, 1, 2))
    story.until_running(3)
    story.hosts.match(JOB, names(0, 2))
    story.until(lambda: story.running == 2 and story.gone == 1)
    story.hosts.match(JOB, names(0, 1, 2))
    story.until_running(3)
    pods = list(story.cluster.jobs[JOB].pods)
    assert ["host0", "host1", "host2"] == [pod.host for pod in pods]
    assert [False, True, False] == [pod.run_id > 1 for pod in pods]
    story.stop()


def test_a_follower_that_fails_is_started_again_later_each_time() -> None:
    """Three failures have waits of 30 s, 1 min and 2 min, however often the job wakes. Then the daemon runs."""
    story = Story(2)
    story.cluster.refusals.update(step_daemon=3)

    def wake_each_second() -> None:
        story.job.jobs_changed([])
        story.clock.after(1.0, wake_each_second)

    wake_each_second()
    story.until(lambda: story.cluster.calls["step_daemon"] == 4)
    ended_s = [child.ended_at_s for child in story.job.past_children if child.failure is not None]
    waits_s = [after - before for before, after in pairwise([*ended_s, story.clock.elapsed_s])]

    assert [30, 60, 120] == [10 * round(wait_s / 10) for wait_s in waits_s]
    story.until_running(2)


def test_a_full_host_is_tried_again_and_said_to_be_full() -> None:
    """A full host is retried with a reason, and the other hosts do not wait for it."""
    story = Story(3)
    story.hosts.full = {Hostname("host1")}
    story.until(lambda: story.running == 2 and "1 pod not on the host yet: " in story.daemon.current_details)
    story.hosts.full = set()
    story.until_running(3)
    story.until(lambda: "not on the host yet" not in story.daemon.current_details)
    story.stop()


def test_a_pod_that_failed_runs_again_on_its_host() -> None:
    """The job notifies the daemon of a failed pod, which runs again on the same host."""
    story = Story(2).until_running(2)
    pod = story.cluster.jobs[JOB].pods.records[1]
    host = pod.host
    story.cluster.report([pod.pod_id], lambda _: PodState.FAILED)
    story.until(lambda: story.cluster.jobs[JOB].pods.records[1].run_id == 2 and story.running == 2)
    assert host == story.cluster.jobs[JOB].pods.records[1].host
    story.stop()


def test_a_daemon_without_hosts_lives_and_ends() -> None:
    """A daemon without hosts waits for hosts and can be stopped."""
    story = Story(0)
    story.until(lambda: story.cluster.calls["step_daemon"] > 0)
    assert ("KILLED", {}) == story.stop()


def test_events_are_for_steps_and_not_for_hosts() -> None:
    """Steps write the same number of events for a hundred times as many hosts."""
    events = []
    for hosts in (10, 1_000):
        story = Story(hosts, per_step=hosts + 1).until_running(hosts)
        events.append(story.daemon.events + story.job.events)
        story.stop()
    assert events[0] == events[1]


def test_an_idle_daemon_costs_few_events() -> None:
    """Twelve wake-ups in an hour, by timers: 11 events for each, and 6 for each wake-up of its job."""
    story = Story(4, history_events_max=2_000).until_running(4)
    story.until(lambda: story.clock.elapsed_s >= 3_600.0)
    job, daemon = story.job.events, story.daemon.events
    story.until(lambda: story.clock.elapsed_s >= 7_200.0)
    assert (12 * 6, 12 * 11) == (story.job.events - job, story.daemon.events - daemon)
    story.stop()


def test_a_daemon_is_not_signalled_of_reads_of_its_job() -> None:
    """A job notifies its daemon only when pods are to be launched on their hosts."""
    story = Story(4).until_running(4)
    story.until(lambda: story.clock.elapsed_s > 3_600.0)
    settled, told = story.cluster.calls["settle"], story.job.commands["signal_external_workflow_execution"]
    for read in range(1, 11):
        story.cluster.notify(JOB)
        story.until(lambda read=read: story.cluster.calls["settle"] >= settled + read)
    assert told == story.job.commands["signal_external_workflow_execution"]
    story.cluster.report([story.on_hosts[0].pod_id], lambda _: PodState.FAILED)
    story.until(lambda: story.cluster.calls["settle"] > settled + 10 and story.running == 4)
    assert told + 1 == story.job.commands["signal_external_workflow_execution"]
    story.stop()


def test_a_large_cluster_is_followed_in_steps() -> None:
    """Steps over a large cluster follow one another at once."""
    story = Story(100, per_step=10).until_running(100)
    assert story.clock.elapsed_s < SLACK_S
    story.stop()


def test_a_long_life_continues_as_new() -> None:
    """A long life continues as new with the same daemon."""
    story = Story(4, history_events_max=60).until_running(4)
    for count in (1, 4, 2, 3, 0, 4):
        story.hosts.match(JOB, names(*range(count)))
        story.until(lambda count=count: story.running == count)
    assert len(story.daemon.runs) > 1
    assert ("KILLED", {"KILLED": 4}) == story.stop()


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("call", range(12))
def test_a_call_that_fails_is_repeated(call: int, fault: Fault) -> None:
    """A call that fails is repeated: no pod is launched twice, and all hosts run their pods."""
    story = Story(10, per_step=4)
    story.job.faults[call] = fault
    story.until_running(10)
    assert ("KILLED", {"KILLED": 10}) == story.stop()


def random_life(seed: int) -> Story:
    """Hosts come and go, are full for a while, pods and calls fail; each started step continues."""
    random, hosts = Random(seed), names(*range(8))
    story = Story(len(hosts), per_step=random.randint(1, 8), history_events_max=random.choice((60, 2_000)))
    for _ in range(15):
        story.hosts.match(JOB, random.sample(hosts, random.randint(0, len(hosts))))
        story.hosts.full = set(random.sample(hosts, random.randint(0, 2)))
        story.job.faults[len(story.job.calls) + random.randint(0, 9)] = random.choice(list(Fault))
        if alive := [pod for pod in story.on_hosts if pod.state is PodState.RUNNING]:
            story.cluster.report([random.choice(alive).pod_id], lambda _: PodState.FAILED)
        wait_s = random.choice((0.1, 1.0, 20.0))
        story.clock.after(wait_s, lambda: None)
        due_s = story.clock.elapsed_s + wait_s
        story.until(lambda due_s=due_s: story.never_twice and story.clock.elapsed_s >= due_s)
    story.hosts.full = set()
    story.hosts.match(JOB, hosts)
    return story


@pytest.mark.parametrize("seed", range(10))
def test_each_host_gets_its_pod_in_the_end(seed: int) -> None:
    """Each host runs its pod, and never two of them, however hosts come and go and calls fail."""
    story = random_life(seed)
    story.until(lambda: story.never_twice and story.running == len(story.hosts.matching))
    assert sorted(story.hosts.matching) == sorted(pod.host for pod in story.on_hosts)
    story.stop()


def test_cancelling_its_workflow_stops_the_daemon() -> None:
    """Cancelling the workflow of the daemon, as in the Web UI, stops the daemon."""
    story = Story(3).until_running(3)
    story.daemon.cancel()
    result = story.job.run()
    assert ("KILLED", {"KILLED": 3}) == (result.state, result.counts)
    while not story.daemon.ended:
        assert story.clock.step()
    assert story.daemon.failure is None


def test_a_terminated_workflow_is_started_again() -> None:
    """The job starts a terminated workflow of its daemon again at once."""
    story = Story(3).until_running(3)
    story.daemon.terminate()
    story.until(lambda: len(story.job.past_children) == 2)
    story.hosts.match(JOB, names(0))
    story.until(lambda: story.running == 1 and story.gone == 2)
    story.stop()
