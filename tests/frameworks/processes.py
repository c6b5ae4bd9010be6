"""The processes of pods on emulated hosts, for tests that kill them."""

from __future__ import annotations

from pathlib import Path


def processes_of(job_id: str) -> set[int]:
    """Return the first process of each pod of a service."""
    found: dict[str, int] = {}
    for folder in sorted((one for one in Path("/proc").iterdir() if one.name.isdigit()), key=lambda one: int(one.name)):
        try:
            variables = (folder / "environ").read_text(errors="replace").split("\0")
        except OSError:
            continue
        named = dict(one.partition("=")[::2] for one in variables)
        if named.get("PELOTON_JOB_ID") == job_id:
            found.setdefault(named.get("MESOS_TASK_ID", ""), int(folder.name))
    return set(found.values())
