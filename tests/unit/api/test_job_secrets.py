"""References of a job to the secrets of requests."""

from __future__ import annotations

import pytest

from peloton.api.job_secrets import check_mounts, join_secrets
from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.v0.job import job_pb2
from peloton.errors import InvalidArgument
from peloton.model.secret import SECRETS_BYTES_MAX, SECRETS_MAX, Secret

KEY, OTHER = Secret("1", "/run/key"), Secret("2", "/run/other")
STORED = {"1": Secret("1", "", b"old", 4), "2": Secret("2", "", b"other")}
NEW = Secret("9", "/run/key", b"new")


def test_data_for_a_path_that_has_a_secret_replaces_it() -> None:
    """New data is stored under a new id, or in place under the old one with the next revision; other secrets are
    unchanged."""
    assert ([NEW, OTHER], [NEW]) == join_secrets([KEY, OTHER], [NEW], STORED, in_place=False)
    in_place = Secret("1", "/run/key", b"new", 5)
    assert ([in_place, OTHER], [in_place]) == join_secrets([KEY, OTHER], [NEW], STORED, in_place=True)


@pytest.mark.parametrize("data", [b"old", b""])
def test_the_same_or_no_data_changes_nothing(data: bytes) -> None:
    """The same data or none changes nothing, so a request may contain the job's secrets."""
    assert ([KEY, OTHER], []) == join_secrets([KEY, OTHER], [Secret("9", "/run/key", data)], STORED, in_place=False)


def test_another_path_joins() -> None:
    """A secret with a new path is appended."""
    third = Secret("9", "/run/third", b"x")

    assert ([KEY, third], [third]) == join_secrets([KEY], [third], STORED, in_place=True)


@pytest.mark.parametrize(
    ("kept", "sent", "text"),
    [
        ([Secret("7", "/k")], [], "secret 7 at /k is not one of this job: send its data"),
        ([], [Secret("9", "/k")], "secret at /k has no data, and the job has none there"),
        (
            [KEY],
            [Secret("9", f"/{i}", b"x") for i in range(SECRETS_MAX)],
            f"the job would have {SECRETS_MAX + 1} secrets, at most {SECRETS_MAX} are allowed",
        ),
        (
            [KEY],
            [Secret("9", "/k", b"x" * SECRETS_BYTES_MAX)],
            f"the job's secrets would have {SECRETS_BYTES_MAX + 3} bytes, at most {SECRETS_BYTES_MAX} fit",
        ),
    ],
)
def test_what_is_refused(kept: list[Secret], sent: list[Secret], text: str) -> None:
    """The error has the path and the numbers."""
    with pytest.raises(InvalidArgument) as refused:
        join_secrets(kept, sent, STORED, in_place=False)

    assert text == refused.value.message


def test_containers_that_cannot_have_a_secret() -> None:
    """A Docker container and a volume at the secret's path are refused, including a volume of one instance."""
    docker, volume = job_pb2.JobConfig(), job_pb2.JobConfig()
    docker.defaultConfig.container.type = mesos_pb2.ContainerInfo.DOCKER
    volume.instanceConfig[3].emptyDirs.add(name="a", containerPath="/run/key")
    texts = []
    for config in (docker, volume):
        check_mounts(config, [])
        with pytest.raises(InvalidArgument) as refused:
            check_mounts(config, [KEY])
        texts.append(refused.value.message)

    assert [
        "secrets: container type DOCKER does not match MESOS",
        "secret at /run/key: a volume is mounted there",
    ] == texts


def test_data_is_not_shown() -> None:
    """The representation of a secret in logs and errors omits the data."""
    assert "new" not in repr(NEW)
