"""Conversion of a pod's message and reason to a readable line."""

from __future__ import annotations

import pytest

from peloton.model.status_text import status_text


@pytest.mark.parametrize(
    ("message", "reason", "reported"),
    [
        ("Add hostname and ports", "REASON_UPDATE_OFFER", "launched on its host"),
        ("", "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED", ""),
        ("Command exited with status 2", "REASON_COMMAND_EXECUTOR_FAILED", "Command exited with status 2"),
        ("", "REASON_CONTAINER_LIMITATION_MEMORY", "out of memory"),
        ("Memory limit exceeded", "REASON_CONTAINER_LIMITATION_MEMORY", "Memory limit exceeded (out of memory)"),
        ("", "REASON_NEWER_THAN_THIS", "newer than this"),
        ("evicting running task: x", "EvictionReason_PREEMPTION", "evicting running task: x"),
        ("Task throttled due to failure; stderr: no disk", "", "waits before it runs again; stderr: no disk"),
        (
            "Command terminated with signal Killed; stderr: x",
            "REASON_CONTAINER_LIMITATION_MEMORY",
            "Command terminated with signal Killed (out of memory); stderr: x",
        ),
        ("; stderr: x", "REASON_CONTAINER_LIMITATION_MEMORY", "out of memory; stderr: x"),
        ("Task sent for placement", "cpu 2 wanted, 1 left", "cpu 2 wanted, 1 left"),
        ("", "waits behind job big in the queue of /p", "waits behind job big in the queue of /p"),
        ('Back-off pulling image "x"', "ImagePullBackOff", 'Back-off pulling image "x"'),
    ],
)
def test_a_message_for_people(message: str, reason: str, reported: str) -> None:
    """Reasons of the wire become words; a readable message is unchanged."""
    assert reported == status_text(message, reason)
