"""Plans for replaying each recording, and the parts that are left out and why."""

from __future__ import annotations

from typing import Any

from tests.conformance.minicluster.plan import Hook, Plan
from tests.conformance.minicluster.replayer import Replay


def _lose(host: str, frozen: bool = False) -> Hook:
    async def act(replay: Replay) -> None:
        replay.cluster.master.agents.disconnect(replay.agent(host), frozen=frozen)

    return act


def _back(host: str, after_s: float) -> Hook:
    async def act(replay: Replay) -> None:
        replay.later(after_s, replay.cluster.master.agents.register, replay.agent(host))

    return act


def _lose_and_return(host: str, after_s: float, crash: str | None = None) -> Hook:
    async def act(replay: Replay) -> None:
        agents = replay.cluster.master.agents
        agents.disconnect(replay.agent(host))
        if crash is not None:
            replay.crash(crash)
        replay.later(after_s, agents.register, replay.agent(host))

    return act


def _crash(task_id: str) -> Hook:
    async def act(replay: Replay) -> None:
        replay.crash(task_id)

    return act


def _unregister(host: str) -> Hook:
    async def act(replay: Replay) -> None:
        agents = replay.cluster.master.agents
        agents.remove(replay.agent(host), "the agent unregistered")

    return act


def _kill(task_id: str) -> Hook:
    async def act(replay: Replay) -> None:
        master = replay.cluster.master
        found = [one.tasks[task_id] for one in master.registry.frameworks.values() if task_id in one.tasks]
        master.tasks.kill(found[0])

    return act


def _tear_down(name: str) -> Hook:
    async def act(replay: Replay) -> None:
        frameworks = replay.cluster.master.frameworks
        for one in [one for one in replay.cluster.master.registry.frameworks.values() if one.info["name"] == name]:
            frameworks.remove(one)

    return act


def _destroy_and_create(request: Any) -> Any:
    """Return an ACCEPT with the effect of one that grows a volume."""
    accept = request["accept"]
    grow = accept["operations"][0]["grow_volume"]
    size = sum(grow[key]["scalar"]["value"] for key in ("volume", "addition"))
    grown = {**grow["volume"], "scalar": {"value": size}}
    operations = [
        {"type": "DESTROY", "destroy": {"volumes": [grow["volume"]]}},
        {"type": "CREATE", "create": {"volumes": [grown]}},
    ]
    return {**request, "accept": {**accept, "operations": operations}}


async def _rescind_all(replay: Replay) -> None:
    for offer in list(replay.cluster.master.offers.outstanding.values()):
        replay.cluster.master.offers.rescind(offer)


PLANS = {
    "01": Plan("01", absent=(448,)),
    # UPDATE_FRAMEWORK and what follows on its stream.
    "02": Plan("02", any_agent=((90, 153),), skip=((155, 168),)),
    # max_completion_time, a general check, a Docker agent, LAUNCH_GROUP, and a list with tasks of these.
    "03": Plan("03", skip=((252, 262), (296, 308), (313, 318), (344, 346), (375, 375))),
    "04": Plan("04"),
    "05": Plan("05", hooks={234: _kill("own"), 249: _crash("exk"), 262: _crash("tk")}),
    "06": Plan("06", skip=((110, 142),)),
    "07": Plan("07", hooks={146: _tear_down("ft30"), 183: _lose("agent1.local"), 187: _back("agent1.local", 3.6)}),
    "08": Plan("08", hooks={212: _lose_and_return("agent1.local", 1.0)}, rewrites={117: _destroy_and_create}),
    "10": Plan(
        "10_agent_failure_fast",
        phase=0.21,
        tidy=True,
        absent=(177,),
        settings={"agent_timeout_s": 4.9},
        hosts=("agent2.local", "agent1.local", "agent3.local"),
        hooks={
            87: _lose("agent1.local"),
            120: _back("agent1.local", 2.1),
            141: _lose("agent2.local", frozen=True),
            149: _back("agent2.local", 0.8),
            166: _lose_and_return("agent3.local", 4.5),
            170: _lose_and_return("agent3.local", 3.6, crash="pa3"),
            199: _unregister("agent3.local"),
        },
        skip=((206, 227),),
    ),
    "12": Plan("12", skip=((111, 113),)),
    "13": Plan("13", hooks={106: _rescind_all}, skip=((82, 82), (85, 98), (102, 103), (105, 118), (186, 187))),
    "18": Plan(
        "18",
        settings={"credentials": {"alice": "a", "bob": "b"}},
        # What access control lists refuse and show: minicluster has none.
        skip=((24, 30), (41, 51), (56, 58)),
    ),
    "14": Plan(
        "14",
        # Offers that expire, another executor kind, protobuf bodies, and agents that are added later.
        skip=((1, 63), (72, 93)),
    ),
}
