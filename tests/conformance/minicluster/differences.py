"""Every difference between the minicluster and the recordings that is accepted, each with its reason.

A difference that is not here fails the suite, and so does an entry that no recording needs any more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


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
    Accepted("03", "metrics", "status|body|headers.*", "endpoints that no framework reads answer 404"),
    Accepted("03", "v0 state", "body.flags.port", "the port is ours"),
    Accepted("07", "operator-events", "stream_closed", "the script's end: the stream is closed by the script itself"),
    Accepted(
        "08",
        "GET_OPERATIONS",
        r"body\.get_operations.*",
        "the real master loses track when an operation id is used twice; we forget what is acknowledged",
    ),
    Accepted("08", "s", "event", "same as above: the implicit reconciliation still names the acknowledged operation"),
    Accepted(
        "09",
        "s|tasks",
        r".*container_status\.(executor_pid|network_infos)",
        "whether TASK_STARTING of a nested container already has them is a race in the real executor",
    ),
    Accepted("09", "s", "executor_ids", "how long an executor outlives its last task is a race in the real agent"),
    Accepted("09", "s", "update.status.message", "the two dumps of the different executors are left out of the text"),
    Accepted(
        "10",
        "operator-events|after return",
        r".*\.status_update_(state|uuid)",
        "a restarted real agent has forgotten what was last sent; ours has not",
    ),
    Accepted(
        "10",
        "state",
        r"body\.get_state\.get_frameworks\..*offered_resources",
        "taking away one agent's ports removes the equal ports of the others from the real master's sum",
    ),
    Accepted("10", "partition-aware", "event", "the real agent sends the update of a lost executor twice, ours once"),
    Accepted("13", "GET_FLAGS", r"body\..*", "the port is ours"),
    Accepted("13", "/state|/master/state|/flags", "body.flags.port", "the port is ours"),
    Accepted("13", "metrics with timeout", r"body\..*", "no metrics in the operator API"),
    Accepted(
        "13",
        "/files/debug|/logging/toggle|/system/stats.*|/help|/machine/up|metrics|.*/metrics/snapshot",
        "status|body|headers.*",
        "endpoints that no framework reads answer 404",
    ),
    Accepted(
        "13",
        "agent /(slave.*)?state",
        r"body\..*",
        "flags are not served, and the command executor's own 0.1 cpus and 32 MB are not counted",
    ),
    Accepted("13", "agent .*", "status|body|headers.*", "agent endpoints that Peloton does not read answer 404"),
    Accepted("13", "agent browse", r"body.*size", "the real executor writes its own lines into stderr"),
    Accepted("13", "operator-events", "stream_closed", "the script's end: the stream is closed by the script itself"),
)

# Parts of recordings that are not replayed, and whole recordings.
NOT_REPLAYED = {
    "06 lines 110-142": "the master restart: one process plays master and agents, there is no registry to recover",
    "09 lines 208-222": "an executor that never registers, and the call that aborts the real master",
    "10 lines 206-227": "agents restarted with another work_dir or other resources: ours are fixed by the hosts file",
    "12 lines 111-113": "an agent process started while its machine is down: ours is started by STOP_MAINTENANCE",
    "13 lines 82-118": "agent operator API, weights and quota are not emulated",
    "13 lines 186-187": "a second process of an agent that is gone",
    "14 lines 13-63": "--http_command_executor (another executor kind), protobuf bodies, raw stream bytes",
    "14 lines 72-93": "agents added while the master runs",
    "18 lines 24-30, 41-51, 56-58": "access control lists are not emulated",
    "10_agent_failure_default_timing": "the same script as fast_timing with longer waits",
    "11_master_restart": "as 06: there is no registry to recover",
    "15_gpu_roles_weights_quota_revocable": "weights and quota are not emulated",
    "17_drain_and_kill_grace_by_executor": "two other executor kinds side by side; draining is covered by 13",
    "20_reservations_disks_and_drain": "calls without headers; tests/unit/lab/mesos/test_reservations.py compares it",
}
