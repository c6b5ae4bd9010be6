"""Instances of a job are added and stopped by batches."""

from __future__ import annotations

from typing import cast

import pytest

from peloton.api.v0.job import job_pb2
from peloton.client import Client
from peloton.client.operations import ranges_of
from peloton.errors import InvalidArgument, NotFound
from peloton.integrations.instances import Instances, InstanceSpec, local_address, refuse
from tests.present import require
from tests.unit.integrations.fake_jobs import POOL, FakeClient


@pytest.fixture
def fake() -> FakeClient:
    return FakeClient()


@pytest.fixture
def workers(fake: FakeClient) -> Instances:
    return Instances(cast(Client, fake), POOL, "workers", InstanceSpec("exec work", cpu=2))


def test_five_hundred_instances_take_three_calls(fake: FakeClient, workers: Instances) -> None:
    """One creates the job, one finds instances that ended, one adds the new ones."""
    assert [0] == workers.add(1)
    assert list(range(1, 500)) == workers.add(499)
    assert ["Create", "List", "Update"] == fake.calls
    assert require(workers.count()).alive_count == 500


def test_ended_instances_are_used_again(fake: FakeClient, workers: Instances) -> None:
    """Stopped ones are started, ones that ended by themselves restarted, and the rest is new."""
    workers.add(4)
    workers.stop([1])
    fake.move(workers.job_id, "SUCCEEDED", 2)
    fake.calls.clear()
    assert [1, 2, 4] == workers.add(3)
    assert ["List", "Start", "Restart", "Update"] == fake.calls
    assert 5 == require(workers.count()).alive_count


def test_a_job_that_ended_is_followed_by_a_new_one(fake: FakeClient, workers: Instances) -> None:
    """Adding instances needs no thought about the job that holds them."""
    workers.add(2)
    first = workers.job_id
    workers.stop_all()
    assert [0, 1, 2] == workers.add(3)
    assert workers.job_id != first


def test_a_job_that_ends_while_it_grows_is_followed_by_a_new_one(fake: FakeClient, workers: Instances) -> None:
    """The refusal of the update is not the caller's."""
    workers.add(1)
    first = workers.job_id

    def end(call: str) -> None:
        if call == "Update":
            fake.move(first, "SUCCEEDED", 0)

    fake.before = end
    assert [0, 1] == workers.add(2)
    assert [first, workers.job_id] == list(fake.jobs_seen)


def test_a_creation_whose_answer_was_lost_creates_one_job(fake: FakeClient, workers: Instances) -> None:
    """The second try has the id of the first."""
    create = fake.Create

    def lose(request: job_pb2.CreateRequest) -> job_pb2.CreateResponse:
        create(request)
        raise ConnectionError

    fake.Create = lose  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        workers.add(2)
    fake.Create = create  # type: ignore[method-assign]
    workers.add(2)
    assert [workers.job_id] == list(fake.jobs_seen)


def test_an_unknown_pool_is_refused(fake: FakeClient) -> None:
    """The error comes before any job, and names the pool."""
    with pytest.raises(NotFound, match="unable to find resource pool /none"):
        Instances(cast(Client, fake), "/none", "workers", InstanceSpec("exec work"))


def test_errors_in_answers_are_raised() -> None:
    """v0 answers with an error inside the response, which a caller would overlook."""
    answer = job_pb2.CreateResponse()
    answer.error.invalidConfig.message = "instanceCount is 0"
    with pytest.raises(InvalidArgument, match="instanceCount is 0"):
        refuse(answer)


def test_numbers_become_the_fewest_ranges() -> None:
    """Neighbours share one; their order and repetitions do not matter."""
    assert [(1, 4), (6, 7)] == [(getattr(one, "from"), one.to) for one in ranges_of([3, 1, 2, 6, 2])]


@pytest.mark.parametrize("address", ["cluster", "cluster:", ":5397", "", "cluster:http"])
def test_an_address_without_a_port_is_refused(address: str) -> None:
    """The error shows the form of an address."""
    with pytest.raises(InvalidArgument, match=f"address '{address}': want HOST:PORT"):
        local_address(address)
