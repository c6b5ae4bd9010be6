"""Shared state of the master's parts: its identity, frameworks and agents. The registry makes no decisions."""

from __future__ import annotations

import socket
import struct
import uuid
from collections.abc import Iterator

from services.lab.mesos.model import Agent, Framework
from services.lab.mesos.resources import Json

VERSION = {
    "build_date": "2020-11-24 15:38:37",
    "build_time": 1606232317.0,
    "build_user": "ubuntu",
    "git_sha": "04bc7ee1984d86fbb0bd782ccc69ce44c13ae4b9",
    "git_tag": "1.11.0",
    "version": "1.11.0",
}

COMPLETED_FRAMEWORKS_MAX = 50
UNREACHABLE_TASKS_MAX = 1000
"""Maximum number of unreachable tasks per framework."""


class Registry:
    """Shared state: `Frameworks` writes the frameworks, `Agents` the agents and `Failover` the identity; all parts
    read."""

    def __init__(self, host: str, started_at: float) -> None:
        self.host = host
        self.port = 0
        self.id = str(uuid.uuid4())
        self.started_at = started_at
        # No master leads between a failure and the failover.
        self.is_away = False
        # By id: subscribed frameworks, and removed ones, the oldest first.
        self.frameworks: dict[str, Framework] = {}
        self.removed_frameworks: dict[str, Framework] = {}
        # Every agent that has ever registered by id, and the agents of the hosts file by host.
        self.agents: dict[str, Agent] = {}
        self.by_host: dict[str, Agent] = {}
        # Number of `recovered` agents: known from the registry, and not returned yet.
        self.recovered_count = 0

    def lead_again(self, started_at: float) -> None:
        """Start the term of another master."""
        self.is_away = False
        self.id = str(uuid.uuid4())
        self.started_at = started_at

    def iterate_registered(self) -> Iterator[Agent]:
        return (agent for agent in self.agents.values() if agent.registered)

    @property
    def hostname(self) -> str:
        return "localhost" if self.host.startswith("127.") else self.host

    def master_info(self) -> Json:
        return {
            "id": self.id,
            "ip": struct.unpack("<I", socket.inet_aton(self.host))[0],
            "port": self.port,
            "pid": f"master@{self.host}:{self.port}",
            "hostname": self.hostname,
            "version": VERSION["version"],
            "address": {"hostname": self.hostname, "ip": self.host, "port": self.port},
            # The empty entry is QUOTA_V2, which the v1 enum of this version cannot name.
            "capabilities": [{"type": "AGENT_UPDATE"}, {"type": "AGENT_DRAINING"}, {}],
        }
