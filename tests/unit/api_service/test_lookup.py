"""Peloton's LookupService over real storage: the names of a job lead to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.lookup import lookup_pb2
from peloton.api.v0.lookup.lookup_pb2_grpc import LookupServiceStub
from peloton.model.ids import RespoolId
from services.api.lookup_service import TEXT_MAX, id_digits, names_meant, pools_meant
from services.storage.storage import Storage
from tests.unit.api_service.story import expect_refusal

TILES = "beef0000-0000-4000-8000-000000000001"
BEEF = "00000000-0000-4000-8000-000000000002"
Build = Callable[..., job_pb2.JobConfig]


@pytest.fixture
def lookup(channel: grpc.aio.Channel) -> Any:
    return LookupServiceStub(channel)


@pytest.fixture
async def two(jobs: Any, config: Build) -> None:
    """Create "tiles" with an id that begins with beef, and "beef"."""
    for job_id, name in ((TILES, "tiles"), (BEEF, "beef")):
        await jobs.Create(job_pb2.CreateRequest(id=peloton_pb2.JobID(value=job_id), config=config(name=name)))


async def find_ids(lookup: Any, text: str, **fields: Any) -> list[str]:
    response = await lookup.FindJobs(lookup_pb2.FindJobsRequest(text=text, **fields))
    return [job.id.value for job in response.jobs]


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tiles", [TILES]),
        ("/eng/maps/tiles", [TILES]),
        ("eng/maps/tiles", [TILES]),
        ("/eng/tiles", []),
        ("/eng/maps/", []),
        ("tile", []),
        ("beef", [BEEF]),  # a name precedes an id
        ("beef0", [TILES]),
        ("BEEF0000-0000", [TILES]),
        ("beef00000000", [TILES]),
        ("bee", []),
        ("beef-", []),
        (TILES, [TILES]),
        ("", []),
    ],
)
async def test_what_a_text_means(lookup: Any, text: str, expected: list[str]) -> None:
    """A text is a name, a pool and name, or the beginning of an id with its dashes in place."""
    assert expected == await find_ids(lookup, text)


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {TILES, BEEF}),
        ("ti", {TILES}),
        ("/eng/maps/", {TILES, BEEF}),
        ("/eng/maps/b", {BEEF}),
        ("beef", {TILES, BEEF}),
    ],
)
async def test_what_may_be_meant(lookup: Any, text: str, expected: set[str]) -> None:
    """Completion finds names, names in a pool, and ids that begin with the text."""
    assert expected == set(await find_ids(lookup, text, begins=True))


@pytest.mark.usefixtures("two")
async def test_an_answer_is_bounded(lookup: Any) -> None:
    """The answer says that there are more than the limit; each job has its distinguishing fields."""
    response = await lookup.FindJobs(lookup_pb2.FindJobsRequest(text="/eng/maps/", begins=True, limit=1))

    assert ([BEEF], True) == ([job.id.value for job in response.jobs], response.hasMore)
    job = response.jobs[0]
    assert ("beef", "/eng/maps", job_pb2.INITIALIZED) == (job.name, job.poolPath, job.state)
    assert job.creationTime.endswith("Z")


@pytest.mark.parametrize("text", ["a\0b", "x" * (TEXT_MAX + 1)])
async def test_what_can_be_no_name(lookup: Any, text: str) -> None:
    """NUL and overlong texts are the caller's fault."""
    request = lookup_pb2.FindJobsRequest(text=text)
    code, details = await expect_refusal(lookup.FindJobs(request))

    assert (grpc.StatusCode.INVALID_ARGUMENT, True) == (code, details.startswith("no job has that name"))


@pytest.mark.usefixtures("two")
async def test_all_sorts_are_found(lookup: Any, storage: Storage) -> None:
    """Jobs match by the beginning of their names, pools and hosts by any part of their names; matches at the beginning
    come first."""
    storage.hosts.claim("west", ["rack1-beef", "Maps-1", "maps_2"])

    beef = await lookup.Find(lookup_pb2.FindRequest(text="beef"))
    maps = await lookup.Find(lookup_pb2.FindRequest(text="MAPS"))
    one = await lookup.Find(lookup_pb2.FindRequest(text="maps", limit=1))

    assert ({BEEF, TILES}, [], ["rack1-beef"]) == (
        {job.id.value for job in beef.jobs}, list(beef.poolPaths), [host.hostname for host in beef.hosts]
    )  # fmt: skip
    assert {job_pb2.BATCH} == {job.type for job in beef.jobs}
    assert ([], ["/eng/maps"], ["Maps-1", "maps_2"]) == (
        list(maps.jobs), list(maps.poolPaths), [host.hostname for host in maps.hosts]
    )  # fmt: skip
    assert (1, False, False, True) == (len(one.hosts), one.hasMoreJobs, one.hasMorePools, one.hasMoreHosts)
    assert lookup_pb2.FindResponse() == await lookup.Find(lookup_pb2.FindRequest())


async def test_no_name_of_anything(lookup: Any) -> None:
    """A text with NUL is refused, as for jobs."""
    code, details = await expect_refusal(lookup.Find(lookup_pb2.FindRequest(text="\0")))

    assert (grpc.StatusCode.INVALID_ARGUMENT, True) == (code, details.startswith("nothing has that name"))


def test_pools_that_a_text_means() -> None:
    """Pools match by any part of the path; matches at the beginning come first, with or without the slash."""
    paths = ["", "/eng", "/eng/maps", "/ops/eng"]

    assert ["/eng", "/eng/maps", "/ops/eng"] == pools_meant("eng", paths)
    assert ["/eng/maps"] == pools_meant("g/m", paths)


def test_names_may_have_slashes() -> None:
    """Every split of a path into pool and name is tried."""
    paths = {RespoolId("a"): "/a", RespoolId("b"): "/a/b", RespoolId("root"): ""}

    assert [("", "/a/b/c"), ("a", "b/c"), ("b", "c")] == names_meant("/a/b/c", paths)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("abcd", "abcd"), ("abc", ""), ("abcd-", ""), ("abcdabcd-1", "abcdabcd1"), ("g" * 4, ""), ("a" * 33, "")],
)
def test_beginnings_of_ids(text: str, expected: str) -> None:
    """The beginning of an id has at least four digits, with all dashes in place or none."""
    assert expected == id_digits(text)
