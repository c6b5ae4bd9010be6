"""Description of a control plane that runs as services of another Peloton: a file, checked and with its defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from zlib import crc32

from peloton.errors import InvalidArgument

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
HOSTS_MAX = 100_000
INSTANCES_MAX = 16
CPU_MAX, MEMORY_MAX_MIB = 256.0, 1_048_576
PORT_MAX = 65_535
TRIAL_PORTS, TRIAL_PORTS_EACH = range(18_000, 20_000), 5
"""The ports of trials, below those that systems give out, and how many a trial has."""


@dataclass(frozen=True)
class Size:
    """The number of pods of a role, and the resources that each of them requests."""

    instances: int
    cpu: float
    memory_mib: int


SIZES = {
    "resmgr": Size(2, 0.5, 1024),
    "hostmgr": Size(2, 0.5, 1024),
    "api": Size(2, 0.5, 1024),
    "worker": Size(2, 0.5, 1024),
    "web": Size(0, 0.2, 512),
    "aurorabridge": Size(0, 0.2, 512),
}
"""The sizes of roles that the file does not name; those with no instances run only where it does."""
TRIAL_SIZES = {
    "resmgr": Size(1, 0.2, 384),
    "hostmgr": Size(1, 0.2, 384),
    "api": Size(1, 0.2, 384),
    "worker": Size(1, 0.2, 512),
    "web": Size(0, 0.1, 256),
    "aurorabridge": Size(0, 0.1, 256),
}
CLIENT_ROLES = ("web", "aurorabridge")
"""Roles that need the API alone, at an address that stays."""
KEYS = (
    "name", "pool", "command", "image", "database", "config", "temporal", "namespace", "mesos", "simulate", "data",
    "port", "address", "settings", "roles",
)  # fmt: skip


@dataclass(frozen=True)
class Deployment:
    """A control plane as the file has it. With ``data`` it is a trial, all of which is on one machine."""

    name: str
    pool: str  # of the outer Peloton
    command: str  # the program `peloton` on the hosts, or in the image
    image: str = ""
    database: str = ""
    config: str = ""  # a file of settings on the hosts; it may have the database with its password
    temporal: str = ""
    namespace: str = "default"
    mesos: str = ""
    simulate: int = 0  # hosts of an emulated Mesos, in a trial
    data: str = ""  # folder of a trial
    port: int = 0  # of the api; 0: each of its pods has one that the cluster gives out
    address: str = ""  # at which roles that are clients reach the api
    settings: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, Size] = field(default_factory=dict)

    @property
    def is_trial(self) -> bool:
        return bool(self.data)

    def trial_port(self, number: int) -> int:
        """Return the port of a trial with this number. It follows from the name, so that clients find it again."""
        slots = len(TRIAL_PORTS) // TRIAL_PORTS_EACH
        return TRIAL_PORTS.start + crc32(self.name.encode()) % slots * TRIAL_PORTS_EACH + number


def parse(given: Mapping[str, object], command: str) -> Deployment:
    """Return the deployment of a file. ``command``: the program where the file names none. Raises InvalidArgument."""
    refuse_unknown("a deployment", given, KEYS)

    def optional(key: str, default: str = "") -> str:
        return text(key, given[key]) if key in given else default

    deployment = Deployment(
        name=optional("name"),
        pool=optional("pool"),
        command=optional("command", command),
        image=optional("image"),
        database=optional("database"),
        config=optional("config"),
        temporal=optional("temporal"),
        namespace=optional("namespace", "default"),
        mesos=optional("mesos"),
        simulate=whole("simulate", given.get("simulate", 0), 0, HOSTS_MAX),
        data=optional("data"),
        port=whole("port", given.get("port", 0), 0, PORT_MAX),
        address=optional("address"),
        settings={key: text(key, value) for key, value in mapping("settings", given.get("settings", {})).items()},
        sizes=parse_sizes(mapping("roles", given.get("roles", {})), TRIAL_SIZES if "data" in given else SIZES),
    )
    for is_broken, rule in rules(deployment):
        if is_broken:
            raise InvalidArgument(f"deployment {deployment.name!r}: {rule}")
    return deployment


def rules(one: Deployment) -> list[tuple[bool, str]]:
    """Return the rules in order, each with whether the deployment breaks it."""
    wanted = [role for role in CLIENT_ROLES if one.sizes[role].instances]
    return [
        (not NAME.fullmatch(one.name), "`name` must be 1 to 40 small letters, digits and dashes between"),
        (not one.pool.startswith("/"), f"`pool` is {one.pool!r}: want the path of a pool of the outer Peloton, /PATH"),
        (
            one.is_trial and bool(one.database or one.config or one.temporal or one.port or one.address),
            "`data` makes a trial, which has its own database, Temporal and ports: leave out "
            "`database`, `config`, `temporal`, `port` and `address`",
        ),
        (one.is_trial and one.sizes["api"].instances > 1, "the api of a trial has one port: `instances` must be 1"),
        (bool(one.simulate) and not one.is_trial, "`simulate` needs `data`, the folder of a trial"),
        (not one.is_trial and not (one.database or one.config), "it needs `database` or `config`, or `data`"),
        (not one.is_trial and not one.temporal, "it needs `temporal`, or `data` for a trial"),
        (not (one.mesos or one.simulate or has_cluster(one)), "it needs hosts: `mesos` or `simulate`"),
        (bool(one.mesos and one.simulate), "`mesos` and `simulate` exclude each other"),
        (
            not one.is_trial and not one.address and bool(wanted),
            f"{' and '.join(wanted)} need `address`, where they reach the api, such as a load balancer",
        ),
    ]


def has_cluster(one: Deployment) -> bool:
    """Return whether settings name a cluster of Kubernetes, or a file does that may."""
    return bool(one.config) or "PELOTON_KUBERNETES" in one.settings


def parse_sizes(given: Mapping[str, object], usual: Mapping[str, Size]) -> dict[str, Size]:
    refuse_unknown("`roles`", given, tuple(usual))
    sizes = {}
    for role, default in usual.items():
        row = mapping(role, given.get(role, {}))
        refuse_unknown(f"role {role}", row, ("instances", "cpu", "memory"))
        instances = max(default.instances, 1) if role in given else default.instances
        sizes[role] = Size(
            whole(f"{role}.instances", row.get("instances", instances), 0 if role in CLIENT_ROLES else 1,
                  INSTANCES_MAX),
            number(f"{role}.cpu", row.get("cpu", default.cpu), CPU_MAX),
            whole(f"{role}.memory", row.get("memory", default.memory_mib), 1, MEMORY_MAX_MIB),
        )  # fmt: skip
    return sizes


def refuse_unknown(what: str, given: Mapping[str, object], known: tuple[str, ...]) -> None:
    if unknown := sorted(str(key) for key in given if key not in known):
        raise InvalidArgument(f"{what} has no key {unknown[0]!r}; known: {', '.join(known)}")


def mapping(key: str, value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"`{key}` is {value!r}: want keys and values")
    return {str(name): inner for name, inner in value.items()}


def text(key: str, value: object) -> str:
    """Return the text of a value; true and false as settings have them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)) or value == "" or "\0" in str(value):
        raise InvalidArgument(f"`{key}` is {value!r}: want text")
    return str(value)


def whole(key: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidArgument(f"`{key}` is {value!r}: want a whole number from {least} to {most:,}")
    return value


def number(key: str, value: object, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
        raise InvalidArgument(f"`{key}` is {value!r}: want a number above 0, at most {most:g}")
    return float(value)
