"""Headless Services of gangs in an apiserver that stores its objects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest

from peloton.api.convert import new_job_record
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.ids import Hostname, JobId, PodId
from services.hostmgr.driver import Claim, HostLaunch, PodLaunch, PodTemplate
from services.hostmgr.kubernetes.pods.gang_services import LIST_S, SWEEP_S, UNUSED_S, GangServices
from services.hostmgr.kubernetes.preparation import Preparation
from services.hostmgr.kubernetes.settings import KubernetesSettings
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, api_of, run_scripted, status

SETTINGS = KubernetesSettings("in-cluster", cluster="west", namespace="peloton", gang_services=True)
PATH = "/api/v1/namespaces/peloton/services"
GANG, PLAIN = (JobId(f"00000000-0000-4000-8000-00000000000{digit}") for digit in (1, 2))
NAME = f"gang-{GANG}"


class World:
    """A store of Services by name, which refuses to create one if ``refuses`` is set, and to delete the one that
    ``keeps`` names; the jobs with live pods, and the time."""

    def __init__(self) -> None:
        self.services: dict[str, Any] = {}
        self.refuses, self.keeps = False, ""
        self.live: set[str] = set()
        self.asked: list[str] = []
        self.now_s = 1_000.0

    def serve(self, asked: Asked) -> Iterator[bytes]:
        path = asked.path.partition("?")[0]
        name = path.removeprefix(f"{PATH}/")
        self.asked.append(asked.method)
        if asked.method == "GET":
            page = {"metadata": {"resourceVersion": "1"}, "items": [*self.services.values()]}
            yield answer(403, status(403, "Forbidden")) if self.refuses else answer(200, page)
        elif asked.method == "DELETE" and name == self.keeps:
            yield answer(403, status(403, "Forbidden"))
        elif asked.method == "DELETE":
            yield answer(200, {}) if self.services.pop(name, None) else answer(404, status(404, "NotFound"))
        elif self.refuses:
            yield answer(403, status(403, "Forbidden", 'cannot create resource "services"'))
        else:
            body = orjson.loads(asked.body)
            name = body["metadata"]["name"]
            is_there = name in self.services
            self.services.setdefault(name, body)
            yield answer(409, status(409, "AlreadyExists")) if is_there else answer(201, body)


@pytest.fixture
def world() -> World:
    return World()


@contextmanager
def services_of(world: World, settings: KubernetesSettings = SETTINGS) -> Iterator[GangServices]:
    with run_scripted(world.serve) as server, api_of(server) as api:
        preparation = Preparation(api, settings)
        yield GangServices(api, settings, lambda: set(world.live), preparation, lambda: world.now_s)


@pytest.fixture
def services(world: World) -> Iterator[GangServices]:
    with services_of(world) as found:
        yield found


def launch(job_id: JobId, gang_size: int = 2) -> HostLaunch:
    config = job_pb2.JobConfig(name="train", instanceCount=4, type=job_pb2.BATCH)
    config.sla.minimumRunningInstances = gang_size
    template = PodTemplate(new_job_record(job_id, config, 1), "/eng", task_pb2.TaskConfig())
    pods = [PodLaunch(PodId(job_id, instance, 1), template, ()) for instance in range(2)]
    return HostLaunch(Claim(Hostname("node-1"), "uid", ("room",)), pods)


def pass_time(services: GangServices, world: World, seconds: float) -> None:
    """Let time pass with a check at each of its ends."""
    services.run_periodic()
    world.now_s += seconds
    services.run_periodic()


def test_a_gang_has_one_headless_service(services: GangServices, world: World) -> None:
    """The Service selects the pods of its job, before they are ready too; jobs without a gang send nothing."""
    launches = [launch(GANG), launch(PLAIN, gang_size=1)]

    assert [(launches, [])] * 2 == [services.make(launches) for _ in range(2)]

    [(name, body)] = world.services.items()
    assert (NAME, ["POST"]) == (name, world.asked)
    assert {
        "clusterIP": "None",
        "selector": {"peloton.io/job": GANG},
        "publishNotReadyAddresses": True,
    } == body["spec"]


@pytest.mark.parametrize(
    ("settings", "gang_size"), [(replace(SETTINGS, gang_services=False), 2), (SETTINGS, 1)], ids=["off", "no gang"]
)
def test_what_is_no_gang_costs_no_request(settings: KubernetesSettings, gang_size: int, world: World) -> None:
    """No Service is created, and none is listed without the setting."""
    with services_of(world, settings) as services:
        launches = [launch(GANG, gang_size)]
        assert (launches, []) == services.make(launches)
        services.run_periodic()

    assert (["GET"] if settings.gang_services else []) == world.asked


def test_members_without_their_service_are_not_launched(services: GangServices, world: World) -> None:
    """Other pods are launched, and a launch without pods returns the resources of a host."""
    world.refuses = True

    kept, failed = services.make([launch(GANG), launch(PLAIN, gang_size=1)])

    assert [0, 2] == [len(each.pods) for each in kept]
    why = f'Service {NAME} of the gang was not made: HTTP 403: cannot create resource "services"'
    assert [(PodId(GANG, instance, 1), why) for instance in range(2)] == failed
    services.run_periodic()  # a list that is refused is no failure


def test_a_service_goes_some_time_after_the_last_pod(services: GangServices, world: World) -> None:
    """The Service stays while pods are live, and after a launch whose pods are not seen yet, and returns."""
    services.make([launch(GANG)])
    world.live = {GANG}
    pass_time(services, world, UNUSED_S)
    world.live = set()
    pass_time(services, world, UNUSED_S - SWEEP_S)
    assert [NAME] == list(world.services)
    services.make([launch(GANG)])
    pass_time(services, world, UNUSED_S - SWEEP_S)
    assert [NAME] == list(world.services)

    pass_time(services, world, SWEEP_S)

    assert [] == list(world.services)
    services.make([launch(GANG)])
    assert [NAME] == list(world.services)


def test_a_successor_takes_over(world: World) -> None:
    """Services of its predecessor go when they have no pods."""
    with services_of(world) as predecessor:
        predecessor.make([launch(GANG), launch(PLAIN)])
    with services_of(world) as successor:
        world.live = {GANG}
        pass_time(successor, world, UNUSED_S)

    assert [NAME] == list(world.services)


def test_a_service_that_others_delete_comes_back(services: GangServices, world: World) -> None:
    """The next list misses it, while its gang has live pods."""
    services.make([launch(GANG), launch(PLAIN)])
    services.run_periodic()
    world.live = {GANG}
    world.services.clear()

    pass_time(services, world, LIST_S)

    assert [NAME] == list(world.services)


def test_a_service_that_cannot_be_deleted_hides_no_other(services: GangServices, world: World) -> None:
    """A gang whose Service was deleted in the same check gets a new one, and other chores go their way."""
    services.make([launch(GANG), launch(PLAIN)])
    world.keeps = NAME
    pass_time(services, world, UNUSED_S)

    services.make([launch(PLAIN)])

    assert {NAME, f"gang-{PLAIN}"} == world.services.keys()
