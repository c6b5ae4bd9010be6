"""Every difference between the minicluster and the recordings that is accepted, each with its reason.

A difference that is not here fails the suite, and so does an entry that no recording needs any more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Accepted:
    """`recording`: beginning of the file name. `where` (label or stream) and `path` are regular expressions."""

    recording: str
    where: str
    path: str
    reason: str

    def covers(self, recording: str, where: str, path: str) -> bool:
        return (
            recording.startswith(self.recording)
            and re.fullmatch(self.where, where) is not None
            and re.fullmatch(self.path, path) is not None
        )


ACCEPTED = (
    Accepted("01", "UNKNOWN type with stream id", "status|body|headers.*", "the real master aborts; we answer 501"),
    Accepted("01", "is the master still there\\?", "status", "the real master has aborted; ours lives"),
    Accepted("01", "unk", "stream_closed", "the real master has aborted; ours keeps the stream"),
    Accepted(
        "",
        ".*",
        r"body\.get_frameworks\..*\.(offers|offered_resources|allocated_resources|offer_constraints|unregistered_time)",
        "frameworks are listed without their offers and sums",
    ),
    Accepted(
        "10",
        "after return",
        r".*\.status_update_(state|uuid)",
        "a restarted real agent has forgotten what was last sent; ours has not",
    ),
    Accepted("10", "partition-aware", "event", "the real agent sends the update of a lost executor twice, ours once"),
    Accepted(
        "13",
        "agent /(slave.*)?state",
        r"body\..*",
        "flags are not served, and the command executor's own 0.1 cpus and 32 MB are not counted",
    ),
    Accepted("13", "agent browse", r"body.*size", "the real executor writes its own lines into stderr"),
)

LEFT_OUT = {
    "/api/v1/scheduler": (
        "SHUTDOWN", "MESSAGE", "REQUEST", "UPDATE_FRAMEWORK", "ACKNOWLEDGE_OPERATION_STATUS", "RECONCILE_OPERATIONS",
    ),
    "/api/v1": (
        "SUBSCRIBE", "GET_STATE", "GET_EXECUTORS", "GET_OPERATIONS", "GET_ROLES", "GET_MASTER", "GET_FLAGS",
        "GET_VERSION", "GET_METRICS", "GET_LOGGING_LEVEL", "SET_LOGGING_LEVEL", "LIST_FILES", "READ_FILE",
        "GET_QUOTA", "UPDATE_QUOTA", "GET_WEIGHTS", "UPDATE_WEIGHTS",
    ),
}  # fmt: skip
"""Calls, by path, which Peloton never sends: they are neither emulated nor replayed."""
PAGES_OF_MASTER = re.compile(r"/api/v1(/scheduler)?|(/master)?/health|/version|/nosuch")
PAGES_OF_AGENT = re.compile(r"/health|/version|(/slave\(1\))?(/state|/flags|/monitor/.*)|/files/.*")
"""Pages that Peloton or its users read; others are neither emulated nor replayed."""
EVENTS_LEFT_OUT = ("UPDATE_OPERATION_STATUS",)
OPERATOR_STREAM = "operator-events"


def is_left_out(line: dict[str, Any], is_master: bool) -> bool:
    """Return whether a line of a recording belongs to a call, a page or an event that is not emulated."""
    if line.get("stream") == OPERATOR_STREAM or line.get("event", {}).get("type") in EVENTS_LEFT_OUT:
        return True
    path, request = line.get("path", "").partition("?")[0], line.get("request")
    if path and (PAGES_OF_MASTER if is_master else PAGES_OF_AGENT).fullmatch(path) is None:
        return True
    return isinstance(request, dict) and request.get("type") in LEFT_OUT.get(path, ())


# Parts of recordings that are not replayed, and whole recordings.
NOT_REPLAYED = {
    "02 lines 155-168": "UPDATE_FRAMEWORK, and what follows on its stream",
    "03 lines 252-262, 296-308, 313-318": "max_completion_time, a general check, an agent without Docker",
    "03 lines 344-346, 375": "a task group, and a list that has tasks of the lines above",
    "06 lines 110-142": "the master restart: one process plays master and agents, there is no registry to recover",
    "10 lines 206-227": "agents restarted with another work_dir or other resources: ours are fixed by the hosts file",
    "12 lines 111-113": "an agent process started while its machine is down: ours is started by STOP_MAINTENANCE",
    "13 lines 82-118": "the operator API of agents, and what follows quotas",
    "13 lines 186-187": "a second process of an agent that is gone",
    "14 lines 1-63": "--offer_timeout, --http_command_executor, protobuf bodies, raw stream bytes",
    "14 lines 72-93": "agents added while the master runs",
    "18 lines 24-30, 41-51, 56-58": "access control lists are not emulated",
    "11_master_restart": "as 06: there is no registry to recover",
    "20_reservations_disks_and_drain": "calls without headers; tests/unit/lab/mesos/test_reservations.py compares it",
}
