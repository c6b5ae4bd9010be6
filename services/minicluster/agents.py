"""The life of agents: registration, lost sockets, the unreachable verdict, return, removal by an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from services.minicluster import events
from services.minicluster.hosts import HostSpec
from services.minicluster.model import TERMINAL, Agent, Task
from services.minicluster.resources import (
    CPUS,
    DISK,
    GPUS,
    MEM,
    PORTS,
    REVOCABLE_CPUS,
    THOUSAND,
    Json,
    Kind,
    Resources,
    kind_of,
)

if TYPE_CHECKING:
    from services.minicluster.master import Master

REMOVED = "REASON_AGENT_REMOVED"
_TOTALS: dict[tuple[object, ...], Resources] = {}


def total_of(spec: HostSpec) -> Resources:
    """What an agent reports; equal hosts share one dict."""
    key = (spec.cpus, spec.mem, spec.disk, spec.gpus, spec.ports, spec.revocable_cpus, spec.role, spec.mounts)
    total = _TOTALS.get(key)
    if total is None:
        total = {}
        mounts = ((mount_disk(index), size) for index, size in enumerate(spec.mounts))
        rows = ((CPUS, spec.cpus), (GPUS, spec.gpus), (MEM, spec.mem), (DISK, spec.disk), *mounts)
        if spec.ports:
            total[_reserved(PORTS, spec.role)] = spec.ports
        for kind, value in rows:
            if value:
                total[_reserved(kind, spec.role)] = round(value * THOUSAND)
        if spec.revocable_cpus:
            total[REVOCABLE_CPUS] = round(spec.revocable_cpus * THOUSAND)
        _TOTALS[key] = total
    return total


def mount_disk(index: int) -> Kind:
    return kind_of("disk", disk={"source": {"type": "MOUNT", "mount": {"root": f"/mnt/{index}"}}})


def _reserved(kind: Kind, role: str) -> Kind:
    """By the agent's own flags."""
    if not role:
        return kind
    return kind_of(kind.name, kind.type, [{"type": "STATIC", "role": role}], kind.disk)


class Agents:
    """`known` holds every agent ever registered by id, `by_name` the ones of the hosts file."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self._settings = master.settings
        self._clock = master.clock
        self._offers = master.offers
        self._updates = master.updates
        self.known: dict[str, Agent] = {}
        self.by_name: dict[str, Agent] = {}
        self.recovered_count = 0
        self._count = 0
        self._kill_later: dict[str, list[Task]] = {}
        self.on_change: Callable[[str, Agent], None] | None = None

    def create(self, spec: HostSpec, port: int, number: int = 1) -> Agent:
        """Agents that share a port are told apart by their number, as in `slave(2)@127.0.0.1:5050`."""
        agent = Agent(f"{self._master.id}-S{self._count}", spec, total_of(spec))
        self._count += 1
        agent.port = port
        agent.pid = f"slave({number})@{self._settings.host}:{port}"
        self.known[agent.id] = agent
        self.by_name[spec.name] = agent
        return agent

    def register(self, agent: Agent) -> None:
        """The agent process (re)connects; what it kept while away is told to the master."""
        if agent.online or agent.gone:
            return
        if self._master.is_away:
            agent.returns = True
            return
        if agent.timer is not None:
            agent.timer.cancel()
            agent.timer = None
        was_unreachable = agent.unreachable_at is not None
        first = agent.registered_at == 0.0
        was_registered, was_recovered = agent.registered, agent.recovered
        is_unknown = agent.id not in self.known
        self.known[agent.id] = agent
        agent.online = agent.registered = True
        agent.recovered = agent.returns = False
        agent.unreachable_at = None
        if first:
            agent.registered_at = self._clock.wall()
        else:
            agent.reregistered_at = self._clock.wall()
        if was_unreachable:
            self._welcome_back(agent)
        elif was_recovered:
            self.recovered_count -= 1
            self._bring_back(agent)
        elif is_unknown:
            self._bring_back(agent)
            self._tell_tasks(agent, "Unknown agent reregistered")
        if not was_registered:
            self._offers.add_agent(agent)
            self._notify("AGENT_ADDED", agent)
        else:
            agent.sleep_epoch = -1
            self._offers.trigger(agent)
        for task in list((agent.tasks or {}).values()):
            self._updates.resend(task)
        for task in self._kill_later.pop(agent.id, ()):
            self._master.kill_task(task)

    def _welcome_back(self, agent: Agent) -> None:
        """An unreachable agent returned with its tasks: they are as they were."""
        for task in list((agent.tasks or {}).values()):
            framework = task.framework
            if not self._master.frameworks.recover(framework):
                self._master.abandon(task)
                continue
            # The list of unreachable tasks is bounded, the agent's own is not.
            framework.unreachable.pop(task.id, None)
            framework.tasks[task.id] = task
            # The agent's own list does not know what the master called the task meanwhile.
            if task.statuses and task.statuses[-1].get("reason") == REMOVED:
                task.statuses.pop()
            task.state = task.status_state = task.reported
            task.released = False
            self._offers.charge(agent, framework.id, task.role, task.resources)
            self._tell_task(task, "Unreachable agent re-reregistered")
            if self._master.on_task_added is not None:
                self._master.on_task_added(task)
        for executor in (agent.executors or {}).values():
            self._offers.charge(agent, executor.framework.id, executor.role, executor.resources)

    def _tell_tasks(self, agent: Agent, message: str) -> None:
        for task in list((agent.tasks or {}).values()):
            self._tell_task(task, message)

    def _tell_task(self, task: Task, message: str) -> None:
        extra: Json = {}
        if task.container is not None and task.reported not in TERMINAL:
            extra["container_status"] = task.container
        self._updates.from_master(
            task.framework,
            task.id,
            task.reported,
            message=message,
            reason="REASON_AGENT_REREGISTERED",
            agent_id=task.agent.id,
            extra=extra,
        )

    # another master

    def forget(self, agent: Agent) -> None:
        """A new master knows of the agent, and not yet what runs there."""
        self.recovered_count += not agent.recovered
        agent.online = agent.registered = False
        agent.recovered = True
        agent.free, agent.owed = agent.total, 0
        self._kill_later.pop(agent.id, None)

    def unknow(self, agent: Agent) -> None:
        """A new master without a registry does not know of the agent, nor of what operators did to it."""
        self.recovered_count -= agent.recovered
        agent.recovered, agent.unreachable_at = False, None
        agent.deactivated, agent.drain, agent.unavailability = False, None, None
        del self.known[agent.id]

    def give_up(self, agent: Agent) -> None:
        """It has not come back to the new master."""
        agent.timer = None
        agent.recovered = False
        self.recovered_count -= 1
        agent.unreachable_at = self._clock.wall()

    def _bring_back(self, agent: Agent) -> None:
        """To a new master the agent tells what runs there; nobody is told."""
        for task in list((agent.tasks or {}).values()):
            framework = task.framework
            if not self._master.frameworks.recover(framework):
                self._master.abandon(task)
                continue
            framework.tasks[task.id] = task
            if not task.released:
                self._offers.charge(agent, framework.id, task.role, task.resources)
        for executor in (agent.executors or {}).values():
            if self._master.frameworks.recover(executor.framework):
                executor.framework.executors[agent.id, executor.id] = executor
                self._offers.charge(agent, executor.framework.id, executor.role, executor.resources)

    # loss

    def lost(self, agent: Agent, frozen: bool = False) -> None:
        """The connection broke: offers are rescinded at once, the tasks wait for the ping timeout."""
        if not agent.online:
            return
        agent.online = False
        if not frozen:
            self._offers.rescind_agent(agent)
        for task in list((agent.tasks or {}).values()):
            if not task.framework.info.get("checkpoint", False):
                self._lose(task, "REASON_AGENT_DISCONNECTED", f"Agent {agent.spec.name} disconnected", "TASK_LOST")
        agent.timer = self._clock.call_later(self._settings.agent_timeout_s, self._unreachable, agent)

    def _lose(self, task: Task, reason: str, message: str, state: str) -> None:
        """The task is over for the master: it will not come back."""
        framework = task.framework
        if framework.tasks.get(task.id) is not task:
            return
        status = self._updates.from_master(
            framework, task.id, state, message=message, reason=reason, agent_id=task.agent.id
        )
        self._updates.forget(task)
        if not task.released:
            task.released = True
            self._offers.recover(task.agent, framework.id, task.role, task.resources)
        task.state = state
        task.statuses.append(status)
        runner = task.runner
        framework.completed.append(task)
        self._master.forget(task)
        if runner is not None:
            runner.kill(0.0)
        self._changed(task, status)

    def _unreachable(self, agent: Agent) -> None:
        agent.timer = None
        agent.unreachable_at = self._clock.wall()
        extra = {"unreachable_time": {"nanoseconds": int(agent.unreachable_at * 1e9)}}
        for task in list((agent.tasks or {}).values()):
            framework = task.framework
            if framework.tasks.pop(task.id, None) is None:
                continue
            if not task.released:
                # Ends the allocation; a returning agent charges it again.
                self._offers.recover(agent, framework.id, task.role, task.resources)
                task.released = True
            state = "TASK_UNREACHABLE" if framework.partition_aware else "TASK_LOST"
            status = self._updates.from_master(
                framework,
                task.id,
                state,
                message="health check timed out",
                reason=REMOVED,
                agent_id=agent.id,
                extra=extra,
            )
            task.state = state
            task.statuses.append(status)
            framework.unreachable[task.id] = task
            while len(framework.unreachable) > self._settings.max_unreachable_tasks_per_framework:
                del framework.unreachable[next(iter(framework.unreachable))]
            self._changed(task, status)
        self._leave(agent)

    def _leave(self, agent: Agent) -> None:
        """The agent is no longer registered: offers die, every framework hears FAILURE."""
        for executor in (agent.executors or {}).values():
            self._offers.recover(agent, executor.framework.id, executor.role, executor.resources)
        self._offers.rescind_agent(agent)
        self._master.maintenance.rescind_inverse(agent)
        agent.registered = False
        self._offers.remove_agent(agent)
        agent.free = agent.total
        agent.owed = 0
        for framework in self._master.live.values():
            framework.send(events.failure(agent.id))

    def remove(self, agent: Agent, state: str, reason: str, message: str) -> None:
        """Machine down, marked gone or unregistered: tasks end with `state`, the agent process stops."""
        if agent.timer is not None:
            agent.timer.cancel()
            agent.timer = None
        for task in list((agent.tasks or {}).values()):
            fitting = state if task.framework.partition_aware else "TASK_LOST"
            self._lose(task, reason, message, fitting)
        if agent.registered:
            self._leave(agent)
        if agent.recovered:
            agent.recovered = agent.returns = False
            self.recovered_count -= 1
        agent.online = False
        for executor in (agent.executors or {}).values():
            executor.framework.executors.pop((agent.id, executor.id), None)
        agent.executors = None
        if agent.runtime is not None:
            agent.runtime.kill_all()
        self._kill_later.pop(agent.id, None)

    def unregister(self, agent: Agent) -> None:
        """The agent says goodbye (SIGUSR1): unlike a crash its tasks are lost at once."""
        message = f"Agent {agent.spec.name} removed: the agent unregistered"
        self.remove(agent, "TASK_LOST", "REASON_AGENT_REMOVED", message)
        self.removed(agent)

    def removed(self, agent: Agent) -> None:
        """Only these ways of leaving show on the operator stream; unreachable and gone agents do not."""
        self._notify("AGENT_REMOVED", agent)

    # small things

    def kill_later(self, task: Task) -> None:
        waiting = self._kill_later.setdefault(task.agent.id, [])
        if task not in waiting:
            waiting.append(task)

    def drain(self, agent: Agent, config: Json) -> None:
        """No more offers; every task is killed and the agent counts as drained when the last one is acknowledged."""
        agent.deactivated = True
        agent.drain = {"state": "DRAINING", "config": config, "started": self._clock.wall()}
        self._offers.rescind_agent(agent)
        for task in list((agent.tasks or {}).values()):
            self._master.kill_task(task)
        self.drained(agent)

    def drained(self, agent: Agent) -> None:
        if agent.drain is None or agent.drain["state"] != "DRAINING" or agent.tasks:
            return
        agent.drain["state"] = "DRAINED"
        if agent.drain["config"].get("mark_gone"):
            agent.gone = True
            self.remove(
                agent, "TASK_GONE_BY_OPERATOR", "REASON_AGENT_REMOVED_BY_OPERATOR", "Agent has been marked gone"
            )

    def _notify(self, type_: str, agent: Agent) -> None:
        if self.on_change is not None:
            self.on_change(type_, agent)

    def _changed(self, task: Task, status: Json) -> None:
        if self._updates.on_change is not None:
            self._updates.on_change(task, status)
