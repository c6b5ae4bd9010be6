"""Sandbox directories in Mesos's layout, the task's environment, and fetching of URIs."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import zipfile
from base64 import b64decode
from collections.abc import Collection
from pathlib import Path
from urllib.parse import unquote, urlsplit

from services.lab.mesos.agents.kept_resources import volume_folder
from services.lab.mesos.agents.task_info import variables_of
from services.lab.mesos.model import Task
from services.lab.mesos.resources import Json
from services.lab.shared.processes import environment_of_children

# A sandbox with more entries takes too long to measure at every poll.
_MAX_ENTRIES = 20_000
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".zip")


class FetchError(Exception):
    """Failure to fetch a URI; the text goes to the sandbox's stderr."""


def runs_dir(data_dir: Path, task: Task) -> Path:
    """Return the folder of the runs of the task's executor."""
    framework = data_dir / "slaves" / task.agent.id / "frameworks" / task.framework.id
    return framework / "executors" / task.id / "runs"


def create(data_dir: Path, task: Task, container_id: str) -> Path:
    """Make the run directory and point `runs/latest` at it."""
    runs = runs_dir(data_dir, task)
    directory = runs / container_id
    directory.mkdir(parents=True)
    latest = runs / "latest"
    latest.unlink(missing_ok=True)
    latest.symlink_to(directory, target_is_directory=True)
    return directory


def link_volumes(data_dir: Path, task: Task, directory: Path) -> None:
    """Link persistent volumes, which are directories of the agent that outlive tasks, at their container paths.

    Raises FileNotFoundError for a missing one: it is created with the volume, and never again.
    """
    for resource in task.info.get("resources", ()):
        disk = resource.get("disk", {})
        path = disk.get("volume", {}).get("container_path")
        if "persistence" not in disk or not path:
            continue
        role = resource.get("role", "*")
        if resource.get("reservations"):
            role = resource["reservations"][-1].get("role", role)
        source = volume_folder(data_dir, task.agent.spec.name, role, disk["persistence"]["id"])
        if not source.is_dir():
            raise FileNotFoundError(f"Persistent volume '{source}' does not exist")
        target = directory / path
        if not target.is_absolute() or target.parent.resolve().is_relative_to(directory.resolve()):
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                target.symlink_to(source, target_is_directory=True)


def write_secrets(task: Task, directory: Path) -> list[Path]:
    """Write volumes that contain a secret, and return their files.

    A container without a file system of its own has them in its sandbox, even with an absolute path.
    """
    files: list[Path] = []
    for volume in task.info.get("container", {}).get("volumes", ()):
        secret = volume.get("source", {}).get("secret", {})
        if "data" not in secret.get("value", {}):
            continue
        target = directory / volume["container_path"].lstrip("/")
        if target.resolve().is_relative_to(directory.resolve()):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch(mode=0o600)
            target.write_bytes(b64decode(secret["value"]["data"]))
            files.append(target.resolve())
    return files


def environment(task: Task, directory: Path, address: str, more: Collection[str] = ()) -> dict[str, str]:
    """Return the environment of a task: variables of minicluster, including ``more``, then Mesos's, then the
    command's."""
    result = environment_of_children(more)
    result.update(
        MESOS_SANDBOX=str(directory),
        MESOS_DIRECTORY=str(directory),
        MESOS_TASK_ID=task.id,
        MESOS_EXECUTOR_ID=task.id,
        MESOS_FRAMEWORK_ID=task.framework.id,
        MESOS_SLAVE_ID=task.agent.id,
        MESOS_AGENT_ID=task.agent.id,
        MESOS_SLAVE_PID=task.agent.pid,
        MESOS_AGENT_ENDPOINT=f"{address}:{task.agent.port}",
        MESOS_CHECKPOINT="1" if task.framework.info.get("checkpoint") else "0",
        MESOS_ALLOCATION_ROLE=task.role,
        MESOS_CONTAINER_IP=address,
    )
    return result | variables_of(task.info.get("command", {}))


def fetch(uris: list[Json], directory: Path) -> None:
    """Copy each URI into the sandbox; only local paths are supported."""
    for uri in uris:
        value = uri["value"]
        parts = urlsplit(value)
        if parts.scheme not in ("", "file"):
            raise FetchError(f"Failed to fetch '{value}': no fetcher for scheme '{parts.scheme}'")
        source = Path(unquote(parts.path) if parts.scheme == "file" else value)
        if not source.is_absolute():
            raise FetchError(f"Failed to fetch '{value}': a relative path was passed but frameworks_home is not set")
        target = directory / uri.get("output_file", source.name)
        if not target.resolve().is_relative_to(directory.resolve()):
            raise FetchError(f"Failed to fetch '{value}': output file '{uri.get('output_file')}' leaves the sandbox")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True)
            else:
                shutil.copy2(source, target)
            if uri.get("executable"):
                target.chmod(target.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
            elif uri.get("extract", True) and target.is_file():
                extract(target, directory)
        except (OSError, tarfile.TarError, zipfile.BadZipFile) as error:
            raise FetchError(f"Failed to fetch '{value}': {error}") from error


def extract(archive: Path, directory: Path) -> None:
    """Unpack by file name ending, like the Mesos fetcher; other files stay as they are."""
    if not archive.name.lower().endswith(_ARCHIVES):
        return
    if archive.name.lower().endswith(".zip"):
        with zipfile.ZipFile(archive) as zipped:
            # zipfile strips absolute and parent paths itself.
            zipped.extractall(directory)  # noqa: S202
        return
    with tarfile.open(archive) as tar:
        tar.extractall(directory, filter="data")


def disk_bytes(directory: Path | None) -> int:
    """Return the disk usage of a directory; 0 when it has too many entries."""
    total = entries = 0
    stack = [directory] if directory is not None else []
    while stack:
        try:
            with os.scandir(stack.pop()) as rows:
                for row in rows:
                    entries += 1
                    if entries > _MAX_ENTRIES:
                        return 0
                    if row.is_dir(follow_symlinks=False):
                        stack.append(Path(row.path))
                    else:
                        total += row.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue
    return total
