"""The state of a host as text: one that is UP may take no pods."""

from __future__ import annotations

from cli.wire import v0

HOST_STATE_PREFIX = "HOST_STATE_"
UNSCHEDULABLE = "unschedulable"


def state_of(info: v0.host.HostInfo) -> str:
    return v0.host.HostState.Name(info.state).removeprefix(HOST_STATE_PREFIX)


def is_unschedulable(info: v0.host.HostInfo) -> bool:
    """Return whether a cordon or a taint of the cluster's operator keeps pods away: such a host offers no amounts."""
    return state_of(info) == "UP" and bool(info.avoided) and not info.HasField("capacity")


def state_words(info: v0.host.HostInfo) -> str:
    return f"{state_of(info)} ({UNSCHEDULABLE})" if is_unschedulable(info) else state_of(info)
