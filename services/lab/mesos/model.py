"""Data model of the master: frameworks, agents, tasks, offers. All have slots: 50,000 agents must fit in memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import orjson

from services.lab.mesos.resources import Json, Resources

if TYPE_CHECKING:
    from services.lab.shared.clock import Timer
    from services.lab.shared.hosts import HostSpec
    from services.lab.shared.http.server import EventStream

TERMINAL = frozenset(
    (
        "TASK_FINISHED",
        "TASK_FAILED",
        "TASK_KILLED",
        "TASK_ERROR",
        "TASK_LOST",
        "TASK_DROPPED",
        "TASK_GONE",
        "TASK_GONE_BY_OPERATOR",
    )
)

COMPLETED_TASKS_MAX = 1000
"""Maximum number of completed tasks kept per framework; the oldest are dropped."""


@dataclass(slots=True, eq=False)
class Update:
    """Status update in delivery to the framework: each retry sends the same event bytes."""

    state: str
    uuid: str
    status: Json
    chunk: bytes


@dataclass(slots=True, eq=False)
class Filter:
    """Resources that a framework refused on one agent until `until` (protocol seconds)."""

    resources: Resources
    until: float


@dataclass(frozen=True, slots=True)
class Usage:
    """Cpu seconds since the start of a task, its resident bytes, and the time of the measurement (unix seconds)."""

    user_s: float
    system_s: float
    memory: int
    at_s: float

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.system_s


class Runner(Protocol):
    """Runner of a task: a real process or a simulated one."""

    def kill(self, grace_s: float | None) -> None: ...

    def usage(self) -> Usage | None:
        """Return the usage, None before the first measurement."""
        ...


class Runtime(Protocol):
    """Runtime of an agent's tasks, as processes or simulated."""

    def launch(self, task: Task) -> None: ...

    def kill_all(self) -> None: ...

    def crash(self, tasks: list[Task]) -> None:
        """Stop the agent with its tasks; it sends their updates when it registers again."""
        ...

    async def close(self) -> None:
        """Release everything when the minicluster stops."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class Task:
    id: str
    framework: Framework
    agent: Agent
    # Kept as bytes and parsed on demand: that takes a fifth of the memory, and few calls read it.
    info_json: bytes
    resources: Resources
    role: str
    # `state` is known to the master, `status_state` was last sent to the framework, and `reported` is known to the
    # agent: it does not change when the master marks the task unreachable.
    state: str = "TASK_STAGING"
    reported: str = "TASK_STAGING"
    status_state: str = "TASK_STAGING"
    status_uuid: str = ""
    statuses: list[Json] = field(default_factory=list)
    # Unacknowledged updates, oldest first; only the first is ever in flight.
    pending: deque[Update] = field(default_factory=deque)
    retry: Timer | None = None
    runner: Runner | None = None
    # container_status of the updates, once the container exists.
    container: Json | None = None
    # Its resources are free again.
    released: bool = False
    # It is in no table any more, and reports of its runner are ignored.
    dropped: bool = False

    @property
    def info(self) -> Json:
        """Return the TaskInfo."""
        info: Json = orjson.loads(self.info_json)
        return info


@dataclass(slots=True, eq=False, repr=False)
class Offer:
    id: str
    framework: Framework
    agent: Agent
    role: str
    resources: Resources


@dataclass(slots=True, eq=False, repr=False)
class Acceptance:
    """ACCEPT in progress. Each of its operations takes from `left`, or converts some of it."""

    framework: Framework
    agent: Agent
    role: str
    left: Resources


@dataclass(slots=True, eq=False, repr=False)
class Agent:
    """Agent of a host. `free` is neither used nor on offer; it shares the dict of `total` while everything is free."""

    id: str
    spec: HostSpec
    total: Resources
    runtime: Runtime
    port: int
    pid: str
    free: Resources = field(init=False)
    # Revocable cpu (thousandths) that is allocated beyond the total, because slack has shrunk since.
    owed: int = 0
    # `online`: the agent process runs and has a connection; `registered`: the master counts it as an agent.
    online: bool = False
    registered: bool = False
    # `recovered`: a new master waits for its return; `returns`: it runs, and is connecting to a master.
    recovered: bool = False
    returns: bool = False
    deactivated: bool = False
    gone: bool = False
    is_degraded: bool = False  # every task fails here as soon as it starts
    unreachable_at: float | None = None
    registered_at: float = 0.0
    reregistered_at: float | None = None
    drain: Json | None = None
    unavailability: Json | None = None
    offers: dict[str, Offer] | None = None
    tasks: dict[tuple[str, str], Task] | None = None
    timer: Timer | None = None
    # Without a change since `sleep_epoch`, no framework can use this agent before `sleep_until`.
    sleep_until: float = 0.0
    sleep_epoch: int = -1
    attributes_json: bytes | None = None

    def __post_init__(self) -> None:
        self.free = self.total

    @property
    def active(self) -> bool:
        return self.registered and self.online and not self.deactivated

    def wake(self) -> None:
        """Include the agent in the next allocation, whatever the last one found."""
        self.sleep_epoch = -1

    @property
    def all_tasks(self) -> list[Task]:
        """Return a copy, which does not change while tasks end."""
        return list(self.tasks.values()) if self.tasks else []

    @property
    def all_offers(self) -> list[Offer]:
        return list(self.offers.values()) if self.offers else []

    def cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


@dataclass(slots=True, eq=False, repr=False)
class Framework:
    id: str
    info: Json
    stream: EventStream | None = None
    stream_id: str = ""
    connected: bool = False
    active: bool = False
    recovered: bool = False
    suppressed: set[str] = field(default_factory=set)
    # By role and agent id.
    filters: dict[tuple[str, str], list[Filter]] = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=dict)
    unreachable: dict[str, Task] = field(default_factory=dict)
    completed: deque[Task] = field(default_factory=lambda: deque(maxlen=COMPLETED_TASKS_MAX))
    offers: dict[str, Offer] = field(default_factory=dict)
    # By the id of the inverse offer.
    inverse: dict[str, Agent] = field(default_factory=dict)
    failover: Timer | None = None
    heartbeat: Timer | None = None
    registered_at: float = 0.0
    reregistered_at: float = 0.0
    # Derived from `info`.
    capabilities: frozenset[str] = field(init=False)
    multi_role: bool = field(init=False)
    partition_aware: bool = field(init=False)
    refined: bool = field(init=False)
    roles: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.set_info(self.info)

    def set_info(self, info: Json) -> None:
        self.info = info
        self.capabilities = frozenset(item["type"] for item in info.get("capabilities", ()) if "type" in item)
        self.multi_role = "MULTI_ROLE" in self.capabilities
        self.partition_aware = "PARTITION_AWARE" in self.capabilities
        self.refined = "RESERVATION_REFINEMENT" in self.capabilities
        self.roles = tuple(info.get("roles", ())) if self.multi_role else (info.get("role", "*"),)

    @property
    def all_tasks(self) -> list[Task]:
        """Return all tasks, including unreachable and ended ones."""
        return [*self.tasks.values(), *self.unreachable.values(), *self.completed]

    def cancel_timers(self) -> None:
        for timer in (self.failover, self.heartbeat):
            if timer is not None:
                timer.cancel()
        self.failover = self.heartbeat = None

    def send(self, chunk: bytes) -> None:
        """Send an event; it is lost without a stream: only the updates of agents are sent again."""
        if self.stream is not None:
            self.stream.send(chunk)
