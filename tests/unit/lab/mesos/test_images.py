"""Images on hosts: the cache in virtual time, tasks that wait for theirs, and the endpoint that fetches ahead."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.lab.mesos.agents.task_info import image_of
from services.lab.mesos.api.own_pages import PREFETCH_MAX
from services.lab.mesos.server import Minicluster
from services.lab.shared.clock import Clock
from services.lab.shared.images import ImageCache, ImageCounts
from tests.unit.lab.mesos.conftest import Start
from tests.unit.lab.mesos.scheduler import request

DOWNLOAD_S = 10.0
FOREVER_S = 10_000.0


class VirtualClock(Clock):
    """A clock that the test advances."""

    def __init__(self) -> None:
        super().__init__()
        self.time_s = 0.0

    def now(self) -> float:
        return self.time_s

    def pass_by(self, seconds: float) -> None:
        end_s = self.time_s + seconds
        while self._heap and self._heap[0][0] <= end_s:
            self.time_s = max(self.time_s, self._heap[0][0])
            self._fire()
        self.time_s = end_s


class Host:
    """One cache, and the start times of tasks by image."""

    def __init__(self, images_max: int = 3) -> None:
        self.clock, self.counts = VirtualClock(), ImageCounts()
        self.cache = ImageCache(self.clock, lambda image: DOWNLOAD_S, images_max, self.counts)
        self.began: list[tuple[str, float]] = []

    def use(self, image: str) -> Any:
        return self.cache.use(image, lambda: self.began.append((image, self.clock.time_s)))

    @property
    def present(self) -> list[str]:
        return list(self.cache.row()["present"])


def test_the_first_task_waits_and_the_next_one_does_not() -> None:
    """A download takes its time once; then the image is there."""
    host = Host()
    host.use("web:1")
    host.clock.pass_by(DOWNLOAD_S - 1)
    assert [] == host.began
    host.clock.pass_by(2)
    host.use("web:1")

    assert [("web:1", 10.0), ("web:1", 11.0)] == host.began
    assert ImageCounts(hits=1, misses=1) == host.counts


def test_downloads_are_shared() -> None:
    """Tasks that come while the image is on its way begin with the first, and so does one after a prefetch."""
    host = Host()
    assert "begun" == host.cache.prefetch("web:1")
    host.clock.pass_by(4)
    assert "downloading" == host.cache.prefetch("web:1")
    host.use("web:1")
    host.clock.pass_by(3)
    host.use("web:1")
    host.clock.pass_by(3)

    assert [("web:1", DOWNLOAD_S)] * 2 == host.began
    assert ImageCounts(joined=2, prefetched=1) == host.counts
    assert "present" == host.cache.prefetch("web:1")


def test_the_least_recently_used_image_goes() -> None:
    """A start and a prefetch are both uses."""
    host = Host(images_max=3)
    for image in "abc":
        host.use(image)
        host.clock.pass_by(DOWNLOAD_S)
    host.use("a")
    host.cache.prefetch("b")
    host.use("d")
    host.clock.pass_by(DOWNLOAD_S)

    assert (["a", "b", "d"], 1) == (host.present, host.counts.evicted)


def test_a_task_that_is_killed_while_it_waits_never_begins() -> None:
    """The image of a task that is killed while it waits is downloaded nevertheless."""
    host = Host()
    host.use("a").cancel()
    host.use("a")
    host.clock.pass_by(DOWNLOAD_S)

    assert ([("a", DOWNLOAD_S)], ["a"]) == (host.began, host.present)


def test_prefetches_are_bounded() -> None:
    """The number of prefetches under way is limited to the number of images that a host can store."""
    host = Host(images_max=2)

    assert ["begun", "begun", "refused", "downloading"] == [host.cache.prefetch(image) for image in "abca"]


ACTS = st.tuples(st.sampled_from(["use", "prefetch", "pass"]), st.sampled_from("abcd"), st.floats(0, 15))


@given(st.lists(ACTS, max_size=60), st.integers(1, 4))
def test_any_course_of_things(acts: list[tuple[str, str, float]], images_max: int) -> None:
    """Every task begins once, at once if its image was there, else within the time of a download; images never exceed
    the bound; a task is a hit, joined or a miss, and each download is a miss's or a prefetch's."""
    host, asked, downloads = Host(images_max), list[tuple[str, float, bool]](), 0
    for act, image, seconds in acts:
        known = host.present + host.cache.row()["downloading"]
        if act == "pass":
            host.clock.pass_by(seconds)
        elif act == "use":
            asked.append((image, host.clock.time_s, image in host.present))
            downloads += image not in known
            host.use(image)
        else:
            downloads += host.cache.prefetch(image) == "begun"
        assert len(host.present) <= images_max
    host.clock.pass_by(FOREVER_S)

    assert sorted(image for image, *_ in asked) == sorted(image for image, _ in host.began)
    for image in "abcd":
        ends = sorted(at_s for began, at_s in host.began if began == image)
        starts = [(at_s, was_there) for used, at_s, was_there in asked if used == image]
        for (start_s, was_there), end_s in zip(starts, ends, strict=True):
            assert end_s == start_s if was_there else start_s <= end_s <= start_s + DOWNLOAD_S
    counts = host.counts
    assert len(asked) == counts.hits + counts.joined + counts.misses
    assert downloads == counts.misses + counts.prefetched == len(host.present) + counts.evicted


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        (None, ""),
        ({"type": "DOCKER", "docker": {"image": "web:1"}}, "web:1"),
        ({"type": "MESOS", "mesos": {"image": {"type": "DOCKER", "docker": {"name": "web:2"}}}}, "web:2"),
        ({"type": "MESOS", "mesos": {"image": {"type": "APPC", "appc": {"name": "web"}}}}, "web"),
        ({"type": "MESOS", "mesos": "anything"}, ""),
        ({"type": "MESOS"}, ""),
    ],
)
def test_where_a_task_names_its_image(container: Any, expected: str) -> None:
    """The image is found for both containerizers; a container without an image has none."""
    assert expected == image_of({} if container is None else {"container": container})


# On a cluster.

WEB = {"container": {"type": "DOCKER", "docker": {"image": "web:1"}}}


async def page(cluster: Minicluster) -> dict[str, Any]:
    status, body = await request(cluster.port, "GET", "/minicluster/images")
    assert 200 == status
    return dict(body)


async def prefetch(cluster: Minicluster, *rows: tuple[str, list[str]]) -> dict[str, int]:
    body = {"images": [{"image": image, "hosts": hosts} for image, hosts in rows]}
    status, answer = await request(cluster.port, "POST", "/minicluster/images", body)
    assert 200 == status
    return dict(answer)


@pytest.mark.parametrize("simulate", [True, False], ids=["simulated", "processes"])
async def test_a_task_waits_for_its_image(start: Start, simulate: bool) -> None:
    """The task stays in TASK_STAGING until its image is there, and the next task finds it; tasks without an image do
    not wait.
    """
    cluster, scheduler = await start(simulate=simulate, image_download_s=1_000.0)
    await scheduler.launch("first", "sleep 1000", **WEB)
    await scheduler.launch("other", "sleep 1000")
    await scheduler.status("other", "TASK_RUNNING")
    framework = cluster.master.registry.frameworks[scheduler.framework_id]
    assert ([], "TASK_STAGING") == (scheduler.states("first"), framework.tasks["first"].state)
    assert {"present": [], "downloading": ["web:1"]} == (await page(cluster))["hosts"]["a0"]

    advance(cluster, 1_000.0)
    await scheduler.status("first", "TASK_RUNNING")
    await scheduler.launch("second", "sleep 1000", **WEB)
    await scheduler.status("second", "TASK_RUNNING")

    found = await page(cluster)
    assert {"present": ["web:1"], "downloading": []} == found["hosts"]["a0"]
    assert {"hits": 1, "joined": 0, "misses": 1, "prefetched": 0, "evicted": 0} == found["counts"]


def advance(cluster: Minicluster, seconds: float) -> None:
    """Advance the clock of the cluster."""
    cluster.clock._start -= seconds
    cluster.clock._arm()


@pytest.mark.parametrize("simulate", [True, False], ids=["simulated", "processes"])
async def test_a_task_that_waits_can_be_killed(start: Start, simulate: bool) -> None:
    """The task ends as a Mesos task does whose container is not there yet."""
    _, scheduler = await start(simulate=simulate, image_download_s=1_000.0)
    await scheduler.launch("t", "sleep 1000", **WEB)
    await scheduler.call("KILL", {"task_id": {"value": "t"}})

    status = await scheduler.status("t", "TASK_KILLED")
    assert "REASON_TASK_KILLED_DURING_LAUNCH" == status["reason"]
    assert ["TASK_KILLED"] == scheduler.states("t")


async def test_an_agent_that_dies_takes_its_waiting_tasks_along(start: Start) -> None:
    """The waiting tasks have failed when the agent is back, whether or not their image has arrived meanwhile."""
    cluster, scheduler = await start(simulate=True, image_download_s=1_000.0)
    await scheduler.launch("t", "sleep 1000", **WEB)
    await request(cluster.port, "POST", "/minicluster/agents/a0/stop", {"now": True})
    assert {"away": 1} == await prefetch(cluster, ("web:2", ["a0"]))
    await request(cluster.port, "POST", "/minicluster/agents/a0/start")

    await scheduler.status("t", "TASK_FAILED")
    assert ["TASK_FAILED"] == scheduler.states("t")


async def test_fetching_ahead(start: Start) -> None:
    """Many hosts in one call, which answers with their outcomes; a task then waits only for the rest."""
    cluster, scheduler = await start(simulate=True, hosts=3, image_download_s=1_000.0)

    assert {"begun": 3, "unknown": 1} == await prefetch(cluster, ("web:1", ["a0", "a1", "a2", "elsewhere"]))
    assert {"downloading": 1, "begun": 1} == await prefetch(cluster, ("web:1", ["a0"]), ("web:2", ["a0"]))
    await scheduler.launch("t", "sleep 1000", **WEB)
    advance(cluster, 1_000.0)
    await scheduler.status("t", "TASK_RUNNING")

    counts = (await page(cluster))["counts"]
    assert (4, 1, 0) == (counts["prefetched"], counts["joined"], counts["misses"])


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "The body is not JSON"),
        ({"images": {}}, "Expected"),
        ({"images": [{"image": "", "hosts": []}]}, "Expected"),
        ({"images": [{"image": "a", "hosts": [1]}]}, "Expected"),
        ({"images": ["a"]}, "Expected"),
        (
            {"images": [{"image": "a", "hosts": ["a0"] * PREFETCH_MAX}, {"image": "b", "hosts": ["a0"]}]},
            f"{PREFETCH_MAX + 1} images on hosts are more than the {PREFETCH_MAX} of one call",
        ),
    ],
)
async def test_calls_that_are_refused(start: Start, body: Any, text: str) -> None:
    """Malformed calls are rejected with the rule, and no image is fetched."""
    cluster, _ = await start(simulate=True)

    status, answer = await request(cluster.port, "POST", "/minicluster/images", body)

    assert 400 == status
    assert text in answer
    assert {} == (await page(cluster))["hosts"]


async def test_other_methods_are_refused(start: Start) -> None:
    """Other methods are rejected with a message that names the supported ones."""
    cluster, _ = await start(simulate=True)

    status, answer = await request(cluster.port, "DELETE", "/minicluster/images")

    assert (405, "/minicluster/images takes GET and POST, not DELETE") == (status, answer)
