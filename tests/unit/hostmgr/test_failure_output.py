"""The last lines of stderr of pods that failed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from peloton.model.ids import JobId, PodId
from peloton.model.pod import PodState, PodStatus
from services.hostmgr.driver import PodOnHost
from services.hostmgr.failure_output import BATCH_MAX, CHARACTERS_MAX, QUEUE_MAX, FailureOutput, last_lines
from services.hostmgr.mesos.sandboxes import without_executor

JOB = JobId("00000000-0000-4000-8000-000000000001")


def failure_status(instance: int, state: PodState = PodState.FAILED, agent_id: str = "agent-1") -> PodStatus:
    return PodStatus(PodId(JOB, instance, 1), state, 1, agent_id=agent_id)


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (b"", ""),
        (b"\n \n", ""),
        (b"sh: 1: nope: not found\n", "sh: 1: nope: not found"),
        (b"1\n2\n3\n4\n5\n6\n7", "3\n4\n5\n6\n7"),
        (b"\x1b[31mred\x00\xff\n", "?[31mred?\N{REPLACEMENT CHARACTER}"),
        (b"x" * 4096, "..." + "x" * (CHARACTERS_MAX - 3)),
    ],
)
def test_the_last_lines_of_the_command_are_kept(tail: bytes, expected: str) -> None:
    """The last lines of the command are kept, without control characters."""
    assert expected == last_lines(tail)


def test_lines_of_the_executor_of_mesos_are_left_out() -> None:
    """The executor logs to the same file as the command."""
    log = b"I1122 05:00:00.123456  4321 exec.cpp:164] Version: 1.11.0\n"

    assert b"oops\nI am here\n" == without_executor(log + b"oops\n" + log + b"I am here\n")


def test_pods_that_failed_are_read_and_stored_in_batches() -> None:
    """Pods that did not fail or wrote nothing, and hosts that do not answer, are left out."""
    stored: list[list[tuple[int, str]]] = []

    def read(pod: PodOnHost, limit_bytes: int) -> bytes:
        instance_id = pod.pod_id.instance_id
        if instance_id == 1:
            raise OSError(f"{pod.host_id} is away")
        return b"" if instance_id == 2 else b"oops %d\n" % instance_id

    def store(texts: Sequence[tuple[PodId, str]]) -> None:
        stored.append([(pod_id.instance_id, text) for pod_id, text in texts])

    output = FailureOutput(read, store)
    output.take(
        [
            failure_status(0),
            failure_status(1),
            failure_status(2),
            failure_status(3, PodState.SUCCEEDED),
            failure_status(4, agent_id=""),
            failure_status(5),
        ]
    )
    output.run_round()
    output.run_round()
    assert [[(0, "oops 0"), (5, "oops 5")]] == stored


def test_of_very_many_failures_the_first_ones_are_read() -> None:
    """A bounded number waits, and a bounded number is read in each round."""
    stored: list[int] = []
    output = FailureOutput(lambda pod, limit_bytes: b"oops\n", lambda texts: stored.append(len(texts)))
    output.take([failure_status(instance) for instance in range(10 * QUEUE_MAX)])
    for _ in range(2 * QUEUE_MAX // BATCH_MAX):
        output.run_round()
    assert [BATCH_MAX] * (QUEUE_MAX // BATCH_MAX) == stored
