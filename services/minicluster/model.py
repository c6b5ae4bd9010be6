"""What the master knows: frameworks, agents, tasks, offers. Slots everywhere: 50,000 agents must fit in memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import orjson

from services.minicluster.resources import Json, Resources

if TYPE_CHECKING:
    from services.minicluster.clock import Timer
    from services.minicluster.hosts import HostSpec
    from services.minicluster.http.server import EventStream

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


class Update:
    """One status update on its way to the framework: the finished event bytes are sent again on each retry."""

    __slots__ = ("chunk", "state", "status", "uuid")

    def __init__(self, state: str, uuid: str, status: Json, chunk: bytes) -> None:
        self.state = state
        self.uuid = uuid
        self.status = status
        self.chunk = chunk


class Filter:
    """Resources a framework refused on one agent until `until` (protocol seconds)."""

    __slots__ = ("resources", "until")

    def __init__(self, resources: Resources, until: float) -> None:
        self.resources = resources
        self.until = until


@dataclass(frozen=True, slots=True)
class Usage:
    """Cpu seconds since the start of a task, its resident bytes, and the moment (unix seconds) of the look."""

    user_s: float
    system_s: float
    memory: int
    at_s: float

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.system_s


class Runner(Protocol):
    """What runs a task: a real process or a simulated one."""

    def kill(self, grace_s: float | None) -> None: ...

    def usage(self) -> Usage | None:
        """None while nothing has been measured."""
        ...


class Runtime(Protocol):
    """What runs the tasks of an agent: as processes, or simulated."""

    def launch(self, task: Task) -> None: ...

    def launch_group(self, tasks: list[Task]) -> None: ...

    def kill_all(self) -> None: ...

    def crash(self, tasks: list[Task]) -> None:
        """The agent died with its tasks; the updates wait until it registers again."""
        ...

    async def close(self) -> None:
        """The minicluster stops."""
        ...


class Task:
    __slots__ = (
        "_info",
        "agent",
        "check_status",
        "container",
        "dropped",
        "executor_id",
        "framework",
        "group",
        "id",
        "peers",
        "pending",
        "released",
        "reported",
        "resources",
        "retry",
        "role",
        "runner",
        "state",
        "status_state",
        "status_uuid",
        "statuses",
    )  # fmt: skip

    def __init__(
        self, id_: str, framework: Framework, agent: Agent, info: Json, resources: Resources, role: str
    ) -> None:
        self.id = id_
        self.framework = framework
        self.agent = agent
        self.info = info
        self.resources = resources
        self.role = role
        # `state` is the latest the agent reported, `status_state` what was last sent to the framework.
        # `reported` is the state on the agent: it does not change when the master calls the task unreachable.
        self.state = self.reported = "TASK_STAGING"
        self.status_state = "TASK_STAGING"
        self.status_uuid = ""
        self.statuses: list[Json] = []
        # Updates not yet acknowledged, oldest first; only the first is ever in flight.
        self.pending: deque[Update] = deque()
        self.retry: Timer | None = None
        self.runner: Runner | None = None
        self.check_status: Json | None = None
        # container_status of the updates, once the container exists.
        self.container: Json | None = None
        # Set for tasks of a default executor.
        self.executor_id: str | None = None
        self.group: Executor | None = None
        # The tasks of the same LAUNCH_GROUP, which share its fate.
        self.peers: list[Task] = []
        self.released = False
        # The task is in no table any more, and reports of its runner are ignored.
        self.dropped = False

    @property
    def info(self) -> Json:
        """Read anew each time: the text takes a fifth of the memory, and few ask."""
        info: Json = orjson.loads(self._info)
        return info

    @info.setter
    def info(self, info: Json) -> None:
        self._info = orjson.dumps(info)


class Executor:
    """A default executor with its own resources; command tasks have none in the master's eyes."""

    __slots__ = ("agent", "container_id", "framework", "id", "info", "resources", "role", "tasks")

    def __init__(self, framework: Framework, agent: Agent, info: Json, resources: Resources, role: str) -> None:
        self.id: str = info["executor_id"]["value"]
        self.framework = framework
        self.agent = agent
        self.info = info
        self.resources = resources
        self.role = role
        self.tasks: dict[str, Task] = {}
        self.container_id = ""


class Offer:
    __slots__ = ("agent", "framework", "id", "resources", "role", "timer")

    def __init__(self, id_: str, framework: Framework, agent: Agent, role: str, resources: Resources) -> None:
        self.id = id_
        self.framework = framework
        self.agent = agent
        self.role = role
        self.resources = resources
        self.timer: Timer | None = None


class Operation:
    """A RESERVE, CREATE, ... with an id: its status is sent again until acknowledged."""

    __slots__ = ("agent", "framework", "id", "info", "retry", "state", "uuid")

    def __init__(self, id_: str, framework: Framework, agent: Agent, info: Json, uuid: str) -> None:
        self.id = id_
        self.framework = framework
        self.agent = agent
        self.info = info
        self.uuid = uuid
        self.state = "OPERATION_FINISHED"
        self.retry: Timer | None = None


class Agent:
    """One agent; `free` is what is neither used nor on offer, and shares `total`'s dict while everything is free."""

    __slots__ = (
        "deactivated", "drain", "executors", "fragment", "free", "gone", "id", "offers", "online", "owed",
        "pid", "port", "recovered", "registered", "registered_at", "reregistered_at", "returns", "runtime",
        "sick", "sleep_epoch", "sleep_until", "spec", "tasks", "timer", "total", "unavailability", "unreachable_at",
    )  # fmt: skip

    def __init__(self, id_: str, spec: HostSpec, total: Resources, runtime: Runtime) -> None:
        self.id = id_
        self.spec = spec
        self.runtime = runtime
        self.total = total
        self.free = total
        # Revocable cpu (thousandths) that is allocated beyond the total: slack has shrunk since.
        self.owed = 0
        self.port = 0
        self.pid = ""
        # `online`: the agent process runs and holds its connection; `registered`: the master counts it as an agent.
        self.online = False
        self.registered = False
        # `recovered`: a new master knows of it and waits for it; `returns`: it runs, and looks for a master.
        self.recovered = self.returns = False
        self.deactivated = False
        self.gone = False
        self.sick = False  # every task fails here as soon as it starts
        self.unreachable_at: float | None = None
        self.registered_at = 0.0
        self.reregistered_at: float | None = None
        self.drain: Json | None = None
        self.unavailability: Json | None = None
        self.offers: dict[str, Offer] | None = None
        self.tasks: dict[tuple[str, str], Task] | None = None
        self.executors: dict[tuple[str, str], Executor] | None = None
        self.timer: Timer | None = None
        # While nothing changed since `sleep_epoch`, no framework can want this agent before `sleep_until`.
        self.sleep_until = 0.0
        self.sleep_epoch = -1
        self.fragment: bytes | None = None

    @property
    def active(self) -> bool:
        return self.registered and self.online and not self.deactivated


class Framework:
    __slots__ = (
        "active", "capabilities", "completed", "connected", "constraints", "executors", "failover", "filters",
        "heartbeat", "id", "info", "inverse", "multi_role", "offers", "operations", "partition_aware", "recovered",
        "refined", "registered_at", "reregistered_at", "roles", "stream", "stream_id", "suppressed", "tasks",
        "unreachable", "unregistered_at",
    )  # fmt: skip

    def __init__(self, id_: str, info: Json, max_completed: int) -> None:
        self.id = id_
        self.stream: EventStream | None = None
        self.stream_id = ""
        self.connected = False
        self.active = False
        self.recovered = False
        self.suppressed: set[str] = set()
        self.filters: dict[tuple[str, str], list[Filter]] = {}
        self.tasks: dict[str, Task] = {}
        self.executors: dict[tuple[str, str], Executor] = {}
        self.unreachable: dict[str, Task] = {}
        self.completed: deque[Task] = deque(maxlen=max_completed)
        self.offers: dict[str, Offer] = {}
        self.operations: dict[str, Operation] = {}
        # By the id of the inverse offer.
        self.inverse: dict[str, Agent] = {}
        self.constraints: Json | None = None
        self.failover: Timer | None = None
        self.heartbeat: Timer | None = None
        self.registered_at = 0.0
        self.reregistered_at = 0.0
        self.unregistered_at: float | None = None
        self.set_info(info)

    def set_info(self, info: Json) -> None:
        self.info = info
        self.capabilities = frozenset(item["type"] for item in info.get("capabilities", ()) if "type" in item)
        self.multi_role = "MULTI_ROLE" in self.capabilities
        self.partition_aware = "PARTITION_AWARE" in self.capabilities
        self.refined = "RESERVATION_REFINEMENT" in self.capabilities
        self.roles: tuple[str, ...] = tuple(info.get("roles", ())) if self.multi_role else (info.get("role", "*"),)

    def send(self, chunk: bytes) -> None:
        """Nothing is kept for a framework without a stream: only the agents' updates are sent again."""
        if self.stream is not None:
            self.stream.send(chunk)
