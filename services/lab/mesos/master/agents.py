"""Lifecycle of agents: registration, disconnection, unreachability, return, removal by an operator."""

from __future__ import annotations

from services.lab.mesos.master import scheduler_events
from services.lab.mesos.master.frameworks import Frameworks
from services.lab.mesos.master.hooks import Hook
from services.lab.mesos.master.host_resources import total_of
from services.lab.mesos.master.offers import Offers
from services.lab.mesos.master.registry import UNREACHABLE_TASKS_MAX, Registry
from services.lab.mesos.master.status_updates import StatusUpdates
from services.lab.mesos.master.tasks import Tasks
from services.lab.mesos.model import TERMINAL, Agent, Runtime, Task
from services.lab.mesos.nanoseconds import in_nanoseconds
from services.lab.mesos.resources import Json, Resources
from services.lab.mesos.settings import MiniclusterSettings
from services.lab.shared.clock import Clock
from services.lab.shared.hosts import HostSpec

REMOVED = "REASON_AGENT_REMOVED"


class Agents:
    def __init__(
        self,
        settings: MiniclusterSettings,
        clock: Clock,
        registry: Registry,
        offers: Offers,
        updates: StatusUpdates,
        tasks: Tasks,
        frameworks: Frameworks,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._registry = registry
        self._offers = offers
        self._updates = updates
        self._tasks = tasks
        self._frameworks = frameworks
        self._count = 0
        # Tasks to kill when their disconnected agent registers again, by its id.
        self._kill_later: dict[str, list[Task]] = {}
        # Fired when an agent is no longer registered, for any reason.
        self.left: Hook[Agent] = Hook()

    def create(
        self, spec: HostSpec, port: int, runtime: Runtime, number: int = 1, total: Resources | None = None
    ) -> Agent:
        """Create an agent.

        `number` distinguishes agents that share a port, as in `slave(2)@127.0.0.1:5050`. `total` replaces the resources
        in the host's settings.
        """
        id_, pid = f"{self._registry.id}-S{self._count}", f"slave({number})@{self._settings.host}:{port}"
        self._count += 1
        agent = Agent(id_, spec, total or total_of(spec), runtime, port, pid)
        self._registry.agents[agent.id] = agent
        self._registry.by_host[spec.name] = agent
        return agent

    def register(self, agent: Agent) -> None:
        """Register a (re)connected agent, with the tasks that it kept while it was disconnected."""
        if agent.online or agent.gone:
            return
        if self._registry.is_away:
            agent.returns = True
            return
        agent.cancel_timer()
        was_unreachable = agent.unreachable_at is not None
        was_registered, was_recovered = agent.registered, agent.recovered
        is_unknown = agent.id not in self._registry.agents
        self._registry.agents[agent.id] = agent
        agent.online = agent.registered = True
        agent.recovered = agent.returns = False
        agent.unreachable_at = None
        if agent.registered_at == 0.0:
            agent.registered_at = self._clock.wall()
        else:
            agent.reregistered_at = self._clock.wall()
        if was_unreachable:
            self._restore(agent)
        elif was_recovered:
            self._registry.recovered_count -= 1
            self._learn(agent)
        elif is_unknown:
            self._learn(agent)
            for task in agent.all_tasks:
                self._send_reregistered(task, "Unknown agent reregistered")
        if not was_registered:
            self._offers.add_agent(agent)
        else:
            self._offers.reoffer(agent)
        for task in agent.all_tasks:
            self._updates.resend(task)
        for task in self._kill_later.pop(agent.id, ()):
            self._tasks.kill(task)

    def _restore(self, agent: Agent) -> None:
        """Restore the former state of tasks on an agent that was unreachable."""
        for task in agent.all_tasks:
            framework = task.framework
            if not self._frameworks.recover(framework):
                self._tasks.abandon(task)
                continue
            # The list of unreachable tasks is bounded, the agent's own is not.
            framework.unreachable.pop(task.id, None)
            framework.tasks[task.id] = task
            # The agent was not notified that the master declared the task unreachable meanwhile.
            if task.statuses and task.statuses[-1].get("reason") == REMOVED:
                task.statuses.pop()
            task.state = task.status_state = task.reported
            task.released = False
            self._offers.charge(agent, framework.id, task.role, task.resources)
            self._send_reregistered(task, "Unreachable agent re-reregistered")

    def _send_reregistered(self, task: Task, message: str) -> None:
        extra: Json = {}
        if task.container is not None and task.reported not in TERMINAL:
            extra["container_status"] = task.container
        reason = "REASON_AGENT_REREGISTERED"
        self._updates.from_master(
            task.framework, task.id, task.reported, reason, message=message, agent_id=task.agent.id, extra=extra
        )

    # another master

    def forget(self, agent: Agent) -> None:
        """Reset an agent known to a new master, which does not know its tasks yet."""
        agent.cancel_timer()
        self._registry.recovered_count += not agent.recovered
        agent.online = agent.registered = False
        agent.recovered = True
        agent.free, agent.owed = agent.total, 0
        self._kill_later.pop(agent.id, None)

    def unlist(self, agent: Agent) -> None:
        """Remove an agent, with its operator settings, from a new master that has no registry."""
        self._registry.recovered_count -= agent.recovered
        agent.recovered, agent.unreachable_at = False, None
        agent.deactivated, agent.drain, agent.unavailability = False, None, None
        del self._registry.agents[agent.id]

    def give_up(self, agent: Agent) -> None:
        """Mark an agent unreachable that has not returned to the new master."""
        agent.timer = None
        agent.recovered = False
        self._registry.recovered_count -= 1
        agent.unreachable_at = self._clock.wall()

    def _learn(self, agent: Agent) -> None:
        """Register the tasks of the agent with a new master."""
        for task in agent.all_tasks:
            framework = task.framework
            if not self._frameworks.recover(framework):
                self._tasks.abandon(task)
                continue
            framework.tasks[task.id] = task
            if not task.released:
                self._offers.charge(agent, framework.id, task.role, task.resources)

    # loss

    def disconnect(self, agent: Agent, frozen: bool = False) -> None:
        """Handle a broken connection: offers are rescinded at once unless the agent only hangs (`frozen`).

        Its tasks wait for the ping timeout.
        """
        if not agent.online:
            return
        agent.online = False
        if not frozen:
            self._offers.rescind_agent(agent)
        for task in agent.all_tasks:
            if not task.framework.info.get("checkpoint", False):
                message = f"Agent {agent.spec.name} disconnected"
                self._tasks.lose(task, "REASON_AGENT_DISCONNECTED", message, "TASK_LOST")
        agent.timer = self._clock.call_later(self._settings.agent_timeout_s, self._mark_unreachable, agent)

    def _mark_unreachable(self, agent: Agent) -> None:
        agent.timer = None
        agent.unreachable_at = self._clock.wall()
        extra = {"unreachable_time": in_nanoseconds(agent.unreachable_at)}
        for task in agent.all_tasks:
            framework = task.framework
            if framework.tasks.pop(task.id, None) is None:
                continue
            # A returning agent charges it again.
            self._tasks.free(task)
            state = "TASK_UNREACHABLE" if framework.partition_aware else "TASK_LOST"
            message = "health check timed out"
            status = self._updates.from_master(
                framework, task.id, state, REMOVED, message=message, agent_id=agent.id, extra=extra
            )
            task.state = state
            task.statuses.append(status)
            framework.unreachable[task.id] = task
            while len(framework.unreachable) > UNREACHABLE_TASKS_MAX:
                del framework.unreachable[next(iter(framework.unreachable))]
        self._unregister(agent)

    def _unregister(self, agent: Agent) -> None:
        """Unregister an agent: its offers end, and every framework gets a FAILURE."""
        self._offers.rescind_agent(agent)
        self.left(agent)
        agent.registered = False
        self._offers.remove_agent(agent)
        agent.free = agent.total
        agent.owed = 0
        for framework in self._registry.frameworks.values():
            framework.send(scheduler_events.failure(agent.id))

    def _remove(self, agent: Agent, state: str, reason: str, message: str) -> None:
        """Remove an agent: its tasks end with `state`, and its process stops."""
        agent.cancel_timer()
        for task in agent.all_tasks:
            self._tasks.lose(task, reason, message, state if task.framework.partition_aware else "TASK_LOST")
        if agent.registered:
            self._unregister(agent)
        if agent.recovered:
            agent.recovered = agent.returns = False
            self._registry.recovered_count -= 1
        agent.online = False
        agent.runtime.kill_all()
        self._kill_later.pop(agent.id, None)

    def remove(self, agent: Agent, cause: str) -> None:
        """Remove an agent, whose tasks are lost at once; it may register again."""
        self._remove(agent, "TASK_LOST", REMOVED, f"Agent {agent.spec.name} removed: {cause}")

    def crash(self, agent: Agent) -> None:
        """Stop the agent and all its tasks together, like a power failure."""
        self.disconnect(agent)
        agent.runtime.crash(agent.all_tasks)

    def restart(self, agent: Agent) -> None:
        """Restart the agent process, like a supervisor."""
        self._clock.call_later(self._settings.agent_recovery_s, self.register, agent)

    # requests of operators and frameworks

    def kill_later(self, task: Task) -> None:
        """Kill a task as soon as its agent registers again."""
        waiting = self._kill_later.setdefault(task.agent.id, [])
        if task not in waiting:
            waiting.append(task)

    def drain(self, agent: Agent, config: Json) -> None:
        """Drain an agent: it gets no more offers, its tasks are killed, and it is drained when the last is
        acknowledged."""
        self.deactivate(agent)
        agent.drain = {"state": "DRAINING", "config": config, "started": self._clock.wall()}
        for task in agent.all_tasks:
            self._tasks.kill(task)
        self._end_drain(agent)

    def task_completed(self, task: Task) -> None:
        self._end_drain(task.agent)

    def _end_drain(self, agent: Agent) -> None:
        if agent.drain is None or agent.drain["state"] != "DRAINING" or agent.tasks:
            return
        agent.drain["state"] = "DRAINED"
        if agent.drain["config"].get("mark_gone"):
            self.mark_gone(agent)

    def deactivate(self, agent: Agent) -> None:
        """Stop offering the agent's resources; its tasks continue."""
        agent.deactivated = True
        self._offers.rescind_agent(agent)

    def reactivate(self, agent: Agent) -> None:
        agent.deactivated = False
        agent.drain = None
        self._offers.reoffer(agent)

    def mark_gone(self, agent: Agent) -> None:
        """Mark an agent gone permanently: it may not register again."""
        if not agent.gone:
            agent.gone = True
            reason = "REASON_AGENT_REMOVED_BY_OPERATOR"
            self._remove(agent, "TASK_GONE_BY_OPERATOR", reason, "Agent has been marked gone")
