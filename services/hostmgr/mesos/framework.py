"""The framework of a host manager in Mesos, one per cluster, and the settings that a rejection by Mesos concerns."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from peloton.api.mesos_access import OPEN, MesosAccess
from services.hostmgr.mesos.resources import Json
from services.hostmgr.mesos.subscription import local_address

FAILOVER_TIMEOUT_S = 7 * 24 * 3600.0


@dataclass(frozen=True)
class MesosSettings:
    master: str  # host:port, or zk://...
    _: KW_ONLY
    cluster: str = "local"
    role: str = "peloton"
    user: str = "root"
    agents_period_s: float = 10.0
    access: MesosAccess = OPEN
    agent_reregister_timeout_s: float = 600.0
    offer_hold_s: float = 10.0


def framework_info(settings: MesosSettings, known_id: str | None) -> Json:
    """Return the FrameworkInfo. ``known_id`` is the id of an earlier registration with the cluster."""
    info: Json = {
        "user": settings.user,
        "name": "Peloton",
        "role": settings.role,
        "hostname": local_address(settings.master),
        "failover_timeout": FAILOVER_TIMEOUT_S,
        "checkpoint": True,
        "capabilities": [{"type": "REVOCABLE_RESOURCES"}, {"type": "GPU_RESOURCES"}],
    }
    if settings.access.principal:
        info["principal"] = settings.access.principal
    if known_id:
        info["id"] = {"value": known_id}
    return info


def framework_refusal(settings: MesosSettings, master: str | None, message: str) -> str:
    """Return the message for a master that accepts the credentials, but not this framework."""
    return (
        f"Mesos master {master} refuses the framework of principal {settings.access.principal!r} "
        f"(PELOTON_MESOS_PRINCIPAL) in role {settings.role!r} (PELOTON_MESOS_ROLE): {message}"
    )
