"""Reserved resources and MOUNT disks, written as a real Mesos writes them: the recording is compared entry by entry."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest

from services.lab.mesos.server import Minicluster
from services.lab.shared.hosts import HostSpec, load_hosts
from services.lab.shared.yaml_rows import FileFault
from tests.conformance.minicluster.recording import load
from tests.unit.lab.mesos.conftest import Start
from tests.unit.lab.mesos.scheduler import Scheduler, request, task_info

LINES = {line["seq"]: line for line in load("20").lines}
AGENTS_BEFORE, RESERVE, CREATE, AGENTS_AFTER, LEGACY_OFFERS, REFINED_OFFERS = 2, 4, 5, 6, 12, 34
HOSTS = (
    HostSpec("peloton-mesos-agent0", ports=((31000, 31333),), role="peloton"),
    HostSpec("peloton-mesos-agent1", ports=((31334, 31667),), disk=0, mounts=(20000,), gpus=2),
    HostSpec("peloton-mesos-agent2", ports=((31668, 32000),)),
)
LEGACY = ("REVOCABLE_RESOURCES", "GPU_RESOURCES")
REFINED = (*LEGACY, "MULTI_ROLE", "RESERVATION_REFINEMENT")


def texts(entries: Iterable[dict[str, Any]]) -> list[str]:
    """Return the texts of entries in a canonical order; the mount point of a disk differs from cluster to cluster."""
    found = [orjson.loads(orjson.dumps(entry)) for entry in entries]
    for entry in found:
        entry.get("disk", {}).get("source", {}).pop("mount", None)
    return sorted(orjson.dumps(entry, option=orjson.OPT_SORT_KEYS).decode() for entry in found)


def of_agents(answer: dict[str, Any], key: str) -> dict[str, list[str]]:
    agents = answer["get_agents"]["agents"]
    return {one["agent_info"]["hostname"]: texts((one if key in one else one["agent_info"])[key]) for one in agents}


def of_offers(events: Iterable[dict[str, Any]]) -> dict[str, list[str]]:
    offers = [offer for event in events if event["type"] == "OFFERS" for offer in event["offers"]["offers"]]
    return {offer["hostname"]: texts(offer["resources"]) for offer in offers}


async def ask(cluster: Minicluster, call: dict[str, Any], status: int = 200) -> Any:
    answered, answer = await request(cluster.port, "POST", "/api/v1", call)
    assert answered == status, answer
    return answer


async def offers_of(cluster: Minicluster, capabilities: tuple[str, ...], **info: Any) -> dict[str, list[str]]:
    """Return the offers of all hosts to a framework of this kind, which is removed afterwards."""
    scheduler = Scheduler(cluster.port)
    await scheduler.subscribe(capabilities, **info)
    for host in HOSTS:
        await scheduler.wait(lambda event, host=host: host.name in of_offers([event]))
    found = of_offers(scheduler.events)
    await scheduler.call("TEARDOWN")
    await scheduler.close()
    return found


async def test_operators_and_frameworks_see_them_as_recorded(start: Start) -> None:
    """The hosts are one fully reserved, one with a MOUNT disk, one with a dynamic reservation and a volume on it."""
    cluster, scheduler = await start(hosts=HOSTS, simulate=True)
    await scheduler.call("TEARDOWN")

    for key in ("resources", "total_resources"):
        assert of_agents(LINES[AGENTS_BEFORE]["response"], key) == of_agents(
            await ask(cluster, {"type": "GET_AGENTS"}), key
        )
    agent_id = {"value": cluster.master.registry.by_host[HOSTS[2].name].id}
    for seq, key in ((RESERVE, "reserve_resources"), (CREATE, "create_volumes")):
        call = LINES[seq]["request"]
        await ask(cluster, {**call, key: {**call[key], "agent_id": agent_id}}, 202)
    assert of_agents(LINES[AGENTS_AFTER]["response"], "total_resources") == of_agents(
        await ask(cluster, {"type": "GET_AGENTS"}), "total_resources"
    )
    legacy = {"role": "peloton", "roles": []}
    assert of_offers([LINES[LEGACY_OFFERS]["event"]]) == await offers_of(cluster, LEGACY, **legacy)
    assert of_offers([LINES[REFINED_OFFERS]["event"]]) == await offers_of(cluster, REFINED, roles=["peloton"])


async def test_no_other_role_is_offered_what_is_reserved(start: Start) -> None:
    """Reserved resources are offered to their role and the roles below it alone."""
    hosts = (HostSpec("a", role="eng"), HostSpec("b"))
    _, scheduler = await start(hosts=hosts, simulate=True, roles=["other"])
    await scheduler.offer("b")
    assert "a" not in of_offers(scheduler.events)

    _, below = await start(hosts=hosts, simulate=True, roles=["eng/maps"])
    assert "a" == (await below.offer("a"))["hostname"]


async def test_an_operation_that_is_not_emulated_changes_nothing(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the operation, and the offered resources are offered again."""
    caplog.set_level("INFO")
    _, scheduler = await start(simulate=True)
    offer = await scheduler.offer()
    operation = {"type": "SHRINK_VOLUME", "id": {"value": "o"}, "shrink_volume": {}}
    filters = {"refuse_seconds": 0}
    await scheduler.call("ACCEPT", {"offer_ids": [offer["id"]], "operations": [operation], "filters": filters})

    again = await scheduler.offer()

    assert (True, offer["resources"]) == (again["id"] != offer["id"], again["resources"])
    assert "SHRINK_VOLUME on agent a0 is dropped: SHRINK_VOLUME is not emulated" in caplog.text


async def test_a_mounted_disk_has_no_parts(start: Start) -> None:
    """A task that requests part of a mounted disk is an error, one that takes it whole runs."""
    _, scheduler = await start(hosts=(HostSpec("a", disk=0, mounts=(500,)),), simulate=True)
    offer = await scheduler.offer()
    (disk,) = [entry for entry in offer["resources"] if entry["name"] == "disk"]
    part = {**disk, "scalar": {"value": 100.0}}
    infos = [task_info(name, offer["agent_id"]["value"], "sleep 1000") for name in ("part", "whole")]
    infos[0]["resources"].append(part)
    infos[1]["resources"].append(disk)
    await scheduler.accept(offer, *infos)

    assert "more than available" in (await scheduler.status("part", "TASK_ERROR"))["message"]
    await scheduler.status("whole", "TASK_RUNNING")


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("role: a//b", "host 'h': role: Role 'a//b' cannot contain two adjacent slashes"),
        ("role: 5", "host 'h': role: must be a text that is not empty, got 5"),
        ("mounts: 5", r"host 'h': mounts: must be a list of sizes in MB above 0, up to 1e\+12, got 5"),
        ("mounts: [0]", r"host 'h': mounts: must be a list of sizes in MB above 0, up to 1e\+12, got \[0\]"),
    ],
)
def test_a_hosts_file_with_a_fault(row: str, text: str, tmp_path: Path) -> None:
    """The text names the host, the rule and the value."""
    path = tmp_path / "hosts.yaml"
    path.write_text(f"- {{name: h, {row}}}\n")

    with pytest.raises(FileFault, match=text):
        load_hosts(path)


def test_a_hosts_file_with_a_role_and_mounts(tmp_path: Path) -> None:
    """A role of * reserves nothing."""
    path = tmp_path / "hosts.yaml"
    path.write_text("- {name: a, role: eng/maps, mounts: [100, 200.5]}\n- {name: b, role: '*'}\n")

    found = [(host.role, host.mounts) for host in load_hosts(path)]

    assert found == [("eng/maps", (100.0, 200.5)), ("", ())]
