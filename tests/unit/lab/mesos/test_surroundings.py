"""Environment variables and files of the machine that pods can see."""

from __future__ import annotations

import os
import stat

import pytest

from tests.unit.lab.mesos.conftest import Start
from tests.unit.lab.mesos.scheduler import request, sandbox


async def test_only_listed_variables_pass(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods have the variables that every command needs and the listed ones; no credentials of the user."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("PELOTON_DATABASE", "secret")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("PROXY_OF_OURS", "proxy")
    cluster, scheduler = await start(pass_env=("PROXY_OF_OURS", "NOT_SET"))

    info = await scheduler.launch("t", "env")
    await scheduler.status("t", "TASK_FINISHED")

    lines = (sandbox(cluster, scheduler, info) / "stdout").read_text().splitlines()
    assert {"LC_ALL=C.UTF-8", "PROXY_OF_OURS=proxy", f"PATH={os.environ['PATH']}"} <= set(lines)
    assert [] == [line for line in lines if "secret" in line or line.startswith("NOT_SET")]


async def test_files_of_pods_are_as_on_an_agent(start: Start) -> None:
    """The umask of the cluster's private files does not apply to files of pods."""
    before = os.umask(0o077)
    try:
        cluster, scheduler = await start()
        info = await scheduler.launch("t", "touch made")
        await scheduler.status("t", "TASK_FINISHED")
    finally:
        os.umask(before)

    assert 0o644 == stat.S_IMODE((sandbox(cluster, scheduler, info) / "made").stat().st_mode)


@pytest.mark.parametrize("call", ["browse", "read", "download"])
async def test_a_path_with_a_nul_byte_is_refused(start: Start, call: str) -> None:
    """A path with a NUL byte is answered with 400."""
    cluster, _ = await start()
    port = next(iter(cluster.master.registry.by_host.values())).port

    status, text = await request(port, "GET", f"/files/{call}?path=%00")

    assert (400, "A path has no NUL bytes.\n") == (status, text)
