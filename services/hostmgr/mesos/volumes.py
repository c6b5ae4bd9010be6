"""Peloton's volumes in Mesos: a dynamic reservation of disk with a persistent volume on it.

The volume's id is in the persistence id, and in a label of the reservation, so that a reservation without its volume
(which a DESTROY leaves behind) is recognised. Disk that an agent's flags reserve for Peloton's role requires no
reservation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from peloton.model.volume import VolumeRecord
from services.hostmgr.mesos.resources import ANY_ROLE, Json

PREFIX = "peloton-"
RESERVED_FOR = "peloton.volume"
"""Label of a reservation."""


def volume_id_of(entry: Json) -> str:
    """Return the id of a persistent volume of Peloton; empty for other resources."""
    name: str = entry.get("disk", {}).get("persistence", {}).get("id", "")
    return name.removeprefix(PREFIX) if name.startswith(PREFIX) else ""


def find_reserved(entry: Json) -> str:
    """Return the id of the volume for which disk without a volume is reserved; empty for other resources."""
    if "disk" in entry:
        return ""
    stack = entry.get("reservations")
    reservation: Json = (stack[-1] if stack else entry.get("reservation")) or {}
    labels = reservation.get("labels", {}).get("labels", ())
    return next((str(label.get("value", "")) for label in labels if label["key"] == RESERVED_FOR), "")


def volumes_in(entries: Iterable[Json]) -> dict[str, Json]:
    """Return by id Peloton's volumes and their incomplete parts."""
    found: dict[str, Json] = {}
    for entry in entries:
        if volume_id := volume_id_of(entry) or find_reserved(entry):
            found[volume_id] = entry
    return found


def whole(entries: Mapping[str, Json]) -> frozenset[str]:
    """Return the ids in ``volumes_in`` that a pod can use."""
    return frozenset(volume_id for volume_id, entry in entries.items() if volume_id_of(entry))


def operations_to_make(volume: VolumeRecord, disk: Json, role: str, principal: str) -> tuple[list[Json], Json]:
    """Return the operations of an ACCEPT that create the volume, and the volume's entry. ``disk`` is an entry of an
    offer, of the volume's size."""
    owner: Json = {"principal": principal} if principal else {}
    operations: list[Json] = []
    if disk.get("role", ANY_ROLE) == ANY_ROLE and not disk.get("reservations"):
        label = {"key": RESERVED_FOR, "value": volume.volume_id}
        disk = {**disk, "role": role, "reservation": {**owner, "labels": {"labels": [label]}}}
        operations.append({"type": "RESERVE", "reserve": {"resources": [disk]}})
    info = {
        "persistence": {"id": PREFIX + volume.volume_id, **owner},
        "volume": {"mode": "RW", "container_path": volume.container_path},
    }
    made = {**disk, "disk": info}
    operations.append({"type": "CREATE", "create": {"volumes": [made]}})
    return operations, made


def calls_to_destroy(agent_id: str, entry: Json) -> list[Json]:
    """Return the calls of the operator API that destroy an entry of ``volumes_in`` as an agent lists it."""
    agent = {"value": agent_id}
    stack = entry.get("reservations") or []
    # Agents list both forms of a reservation, and a call accepts one.
    refined = {key: value for key, value in entry.items() if key not in ("role", "reservation")} if stack else entry
    calls: list[Json] = []
    if "disk" in refined:
        calls.append({"type": "DESTROY_VOLUMES", "destroy_volumes": {"agent_id": agent, "volumes": [refined]}})
    rest = {key: value for key, value in refined.items() if key != "disk"}
    if stack and stack[-1]["type"] == "DYNAMIC":
        calls.append({"type": "UNRESERVE_RESOURCES", "unreserve_resources": {"agent_id": agent, "resources": [rest]}})
    return calls
