"""Resources that an agent keeps across restarts: dynamic reservations, and volumes with their files.

A host's record is a file of its own, so a minicluster that restarts with the same folder keeps them, too.
"""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import orjson

from services.lab.mesos.model import Agent
from services.lab.mesos.resources import Kind, Resources, add_to, contains, kind_of, parse, take_from, to_json
from services.lab.shared.hosts import HostSpec

log = logging.getLogger(__name__)


def volume_folder(data_dir: Path, hostname: str, role: str, name: str) -> Path:
    return data_dir / "volumes" / hostname / role.replace("/", "%") / name


def volume_name(kind: Kind) -> str:
    """Return the persistence id of a volume; "" for other kinds."""
    name: str = (kind.disk or {}).get("persistence", {}).get("id", "")
    return name


def _is_kept(kind: Kind) -> bool:
    return bool(volume_name(kind)) or (bool(kind.reservations) and kind.reservations[-1]["type"] == "DYNAMIC")


def _without_run_time_changes(kind: Kind) -> Kind:
    """Return the kind as configured in the host's own settings."""
    disk = {key: value for key, value in (kind.disk or {}).items() if key == "source"}
    static = [entry for entry in kind.reservations if entry["type"] == "STATIC"]
    return kind_of(kind.name, kind.type, static, disk or None, kind.revocable)


@dataclass(frozen=True)
class KeptResources:
    data_dir: Path

    def save(self, agent: Agent) -> None:
        """Save the agent's changed resources: create the folders of new volumes, once, and delete files of former
        ones."""
        kept = {kind: value for kind, value in agent.total.items() if _is_kept(kind)}
        path = self._path(agent.spec)
        before = self._read_record(agent.spec)
        for kind in kept.keys() - before.keys():
            if folder := self._folder(agent.spec, kind):
                folder.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(".new")
        written.write_bytes(orjson.dumps(to_json(kept, refined=True)))
        os.replace(written, path)
        volumes = {self._folder(agent.spec, kind) for kind in kept}
        for folder in self._folders(agent.spec.name):
            if folder not in volumes:
                shutil.rmtree(folder, ignore_errors=True)

    def _folder(self, spec: HostSpec, kind: Kind) -> Path | None:
        """Return the folder of a volume, None for other kinds."""
        name = volume_name(kind)
        return volume_folder(self.data_dir, spec.name, kind.role or "*", name) if name else None

    def _folders(self, hostname: str) -> list[Path]:
        return list((self.data_dir / "volumes" / hostname).glob("*/*"))

    def restore(self, spec: HostSpec, total: Resources) -> Resources:
        """Return the host's resources, including the kept ones; a volume without its folder was lost with its disk.

        Raises ValueError for a broken record.
        """
        recorded = self._read_record(spec)
        if not recorded:
            return total
        result = dict(total)
        for kind, value in recorded.items():
            if (folder := self._folder(spec, kind)) is not None and not folder.is_dir():
                log.warning("host %s has lost volume %s: %s is not there", spec.name, volume_name(kind), folder)
                continue
            plain = {_without_run_time_changes(kind): value}
            if not contains(result, plain):
                log.warning("host %s has not enough resources left for %r, which it had kept", spec.name, kind)
                continue
            take_from(result, plain)
            add_to(result, {kind: value})
        return result

    def _read_record(self, spec: HostSpec) -> Resources:
        path = self._path(spec)
        return parse(orjson.loads(path.read_bytes())) if path.exists() else {}

    def _path(self, spec: HostSpec) -> Path:
        return self.data_dir / "kept" / f"{spec.name}.json"
