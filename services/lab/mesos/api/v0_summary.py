"""Unversioned pages for dashboards and exporters: /state-summary and /roles."""

from __future__ import annotations

from collections import Counter

from services.lab.mesos.api import v0_state
from services.lab.mesos.api.v1_views import offered, used
from services.lab.mesos.master.registry import Registry
from services.lab.mesos.resources import PORTS, THOUSAND, Json, Resources, add_to, scalars, sum_of

_STATES = (
    "TASK_STAGING",
    "TASK_STARTING",
    "TASK_RUNNING",
    "TASK_KILLING",
    "TASK_FINISHED",
    "TASK_KILLED",
    "TASK_FAILED",
    "TASK_LOST",
    "TASK_ERROR",
    "TASK_UNREACHABLE",
)


def _counts(counted: Counter[str]) -> Json:
    return {state: counted[state] for state in _STATES}


def state_summary(registry: Registry) -> Json:
    """Return agents and frameworks with the number of their tasks in each state, including ended tasks."""
    by_agent: dict[str, Counter[str]] = {}
    frameworks_of: dict[str, set[str]] = {}
    rows = []
    for framework in registry.frameworks.values():
        mine: Counter[str] = Counter()
        agents: set[str] = set()
        for task in framework.all_tasks:
            mine[task.state] += 1
            agents.add(task.agent.id)
            by_agent.setdefault(task.agent.id, Counter())[task.state] += 1
            frameworks_of.setdefault(task.agent.id, set()).add(framework.id)
        rows.append({**v0_state.framework_summary(framework), **_counts(mine), "slave_ids": sorted(agents)})
    slaves = [
        {
            **v0_state.slave(agent),
            **_counts(by_agent.get(agent.id, Counter())),
            "framework_ids": sorted(frameworks_of.get(agent.id, ())),
        }
        for agent in registry.registered()
    ]
    return {"hostname": registry.hostname, "slaves": slaves, "frameworks": rows}


def _quantities(resources: Resources) -> Json:
    """Return amounts by name, and the number of ports."""
    result: Json = {name: value / THOUSAND for name, value in scalars(resources).items() if value}
    if ports := resources.get(PORTS):
        assert isinstance(ports, tuple)
        result["ports"] = float(sum(end - begin + 1 for begin, end in ports))
    return {name: result[name] for name in sorted(result)}


def roles(registry: Registry) -> Json:
    """Return roles of frameworks or with resources, and their ancestors, which include the same resources.

    minicluster has no quotas and no weights.
    """
    members: dict[str, list[str]] = {}
    for framework in registry.frameworks.values():
        for name in framework.roles:
            members.setdefault(name, []).append(framework.id)
    allocated: dict[str, Resources] = {}
    on_offer: dict[str, Resources] = {}
    reserved: dict[str, Resources] = {}
    for agent in registry.registered():
        for sums, parts in ((allocated, used(agent)), (on_offer, offered(agent))):
            for role, part in parts.items():
                _add_upwards(sums, role, part)
        for kind, value in agent.total.items():
            if kind.role is not None:
                _add_upwards(reserved, kind.role, {kind: value})
    names = {above for name in members for above in _with_all_above(name)}
    return {
        "roles": [
            _role(name, allocated.get(name, {}), on_offer.get(name, {}), reserved.get(name, {}), members.get(name, []))
            for name in sorted(names | allocated.keys() | on_offer.keys() | reserved.keys())
        ]
    }


def _role(name: str, allocated: Resources, on_offer: Resources, reserved: Resources, members: list[str]) -> Json:
    held = _quantities(allocated)
    consumed = {kind: value for kind, value in held.items() if kind != "ports"}
    return {
        "name": name,
        "weight": 1.0,
        "quota": {"role": name, "guarantee": {}, "limit": {}, "consumed": consumed},
        "resources": _quantities(sum_of((allocated, on_offer))),
        "allocated": held,
        "offered": _quantities(on_offer),
        "reserved": _quantities(reserved),
        "frameworks": members,
    }


def _with_all_above(role: str) -> list[str]:
    parts = role.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _add_upwards(sums: dict[str, Resources], role: str, part: Resources) -> None:
    for name in _with_all_above(role):
        add_to(sums.setdefault(name, {}), part)
