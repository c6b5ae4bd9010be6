"""Images that an update in place needs next, and the hosts that have to fetch them."""

from __future__ import annotations

from peloton.api import convert
from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.ids import JobId, new_job_id
from peloton.model.update import UpdateAct, UpdateSpec, UpdateState, UpdateType
from services.storage.storage import Storage
from tests.conformance.storage.builders import NOW, pods
from tests.conformance.storage.services import ALL_AT_ONCE, roll, service_config, turn, update

IN_PLACE = UpdateSpec(batch_size=1, in_place=True)


def config_of(image: str, count: int = 4, command: str = "v1", **own: str) -> job_pb2.JobConfig:
    """``i2="x"``: instance 2 has an image of its own."""
    config = service_config(count, command)
    set_image(config.defaultConfig, image)
    for instance, name in own.items():
        set_image(config.instanceConfig[int(instance[1:])], name)
    return config


def set_image(config: task_pb2.TaskConfig, image: str) -> None:
    config.container.type = mesos_pb2.ContainerInfo.DOCKER
    config.container.docker.image = image


def a_service_of(storage: Storage, config: job_pb2.JobConfig) -> JobId:
    job_id = new_job_id()
    storage.updates.create_service(convert.new_job_record(job_id, config, NOW), config, b"", ALL_AT_ONCE, "", NOW)
    roll(storage, job_id)
    return job_id


def pod_hosts(storage: Storage, job_id: JobId) -> dict[int, str]:
    return {pod.instance_id: pod.host for pod in pods(storage, job_id)}


def expect_images(pod_hosts: dict[int, str], *wanted: tuple[str, int]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for image, instance in wanted:
        hosts = found.setdefault(image, [])
        hosts += [pod_hosts[instance]] if pod_hosts[instance] not in hosts else []
    return found


def test_the_new_image_on_the_hosts_of_the_next_batches(storage: Storage) -> None:
    """The answer lists the hosts of the next batches step by step, until no batch is left. The step returns their
    number."""
    job_id = a_service_of(storage, config_of("web:1"))
    where = pod_hosts(storage, job_id)
    assert {} == storage.updates.images_to_prefetch(job_id)
    update(storage, job_id, config_of("web:2"), IN_PLACE)

    for coming in ((1, 2), (2, 3), (3,), ()):
        images = expect_images(where, *(("web:2", i) for i in coming))
        progress = turn(storage, job_id)
        assert sum(map(len, images.values())) == progress.coming_image_count
        assert images == storage.updates.images_to_prefetch(job_id)
    assert where == pod_hosts(storage, job_id)


def test_instances_with_images_of_their_own(storage: Storage) -> None:
    """Each instance is compared with its current image. An override that stays needs no image, and one that is added or
    removed does."""
    job_id = a_service_of(storage, config_of("web:1", i1="canary:1", i2="canary:1"))
    where = pod_hosts(storage, job_id)
    update(
        storage, job_id, config_of("web:1", i1="canary:1", i3="canary:2", command="v2"), UpdateSpec(2, in_place=True)
    )

    turn(storage, job_id)

    assert expect_images(where, ("web:1", 2), ("canary:2", 3)) == storage.updates.images_to_prefetch(job_id)


def test_an_image_that_stays(storage: Storage) -> None:
    """An update that changes only the command needs no image."""
    job_id = a_service_of(storage, config_of("web:1"))
    update(storage, job_id, config_of("web:1", command="v2"), IN_PLACE)

    assert 0 == turn(storage, job_id).coming_image_count
    assert {} == storage.updates.images_to_prefetch(job_id)


def test_hosts_that_are_not_known(storage: Storage) -> None:
    """An instance that is placed again may go to any host, so no host fetches its image."""
    job_id = a_service_of(storage, config_of("web:1"))
    update(storage, job_id, config_of("web:2"), UpdateSpec(batch_size=1))

    assert 0 == turn(storage, job_id).coming_image_count
    assert {} == storage.updates.images_to_prefetch(job_id)


def test_a_service_that_is_not_updated(storage: Storage) -> None:
    """An unknown, paused or restarted service needs no image."""
    assert {} == storage.updates.images_to_prefetch(new_job_id())
    job_id = a_service_of(storage, config_of("web:1"))
    update(storage, job_id, config_of("web:2"), IN_PLACE)
    turn(storage, job_id)
    storage.updates.steer(job_id, None, UpdateAct.PAUSE, None, NOW)
    assert {} == storage.updates.images_to_prefetch(job_id)
    storage.updates.steer(job_id, None, UpdateAct.ABORT, None, NOW)
    update(storage, job_id, None, IN_PLACE, type=UpdateType.RESTART)
    assert (0, {}) == (turn(storage, job_id).coming_image_count, storage.updates.images_to_prefetch(job_id))


def test_the_way_back(storage: Storage) -> None:
    """An update back to the former version needs the old image for the instances that had moved, in their order. The
    others need none."""
    job_id = a_service_of(storage, config_of("web:1"))
    where = pod_hosts(storage, job_id)
    update(storage, job_id, config_of("web:2"), IN_PLACE)
    for _ in range(3):
        turn(storage, job_id)
    update(storage, job_id, config_of("web:1"), IN_PLACE)

    assert 1 < turn(storage, job_id).total_count < 4

    assert expect_images(where, ("web:1", 1), ("web:1", 2)) == storage.updates.images_to_prefetch(job_id)
    assert UpdateState.SUCCEEDED is roll(storage, job_id).state
    assert where == pod_hosts(storage, job_id)
