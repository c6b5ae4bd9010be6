"""Tasks as real processes: exits, signals, kills, sandboxes, checks, limits, agents that die and return."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from services.lab.shared.hosts import HostSpec
from services.lab.shared.processes import MARK, Processes
from tests.ports import free_ports
from tests.unit.lab.mesos.conftest import Start
from tests.unit.lab.mesos.scheduler import (
    CAPABILITIES,
    WAIT_S,
    Scheduler,
    alive,
    request,
    sandbox,
    scalar,
    task_info,
    wait_until_gone,
    written,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("command", "state", "message"),
    [
        ("true", "TASK_FINISHED", "Command exited with status 0"),
        ("exit 3", "TASK_FAILED", "Command exited with status 3"),
        ("kill -SEGV $$", "TASK_FAILED", "Command terminated with signal Segmentation fault"),
        ("kill -KILL $$", "TASK_FAILED", "Command terminated with signal Killed"),
        ({"shell": False, "value": "/no/such/binary"}, "TASK_FAILED", "Command exited with status 1"),
        (
            {"shell": False, "value": "/bin/sh", "arguments": ["sh", "-c", "exit 4"]},
            "TASK_FAILED",
            "Command exited with status 4",
        ),
    ],
)
async def test_exit_is_reported_in_the_words_of_mesos(start: Start, command: Any, state: str, message: str) -> None:
    """The states are STARTING, RUNNING, then the end with its message, all from the executor."""
    _, scheduler = await start()
    await scheduler.launch("t", command)

    status = await scheduler.status("t", "TASK_FINISHED", "TASK_FAILED")

    assert (state, message, "SOURCE_EXECUTOR") == (status["state"], status["message"], status["source"])
    assert ["TASK_STARTING", "TASK_RUNNING", state] == scheduler.states("t")


async def test_sandbox_and_environment(start: Start) -> None:
    """The files stdout and stderr are in the sandbox, and the environment of the task names its folder."""
    cluster, scheduler = await start()
    command = {
        "value": "echo $MESOS_TASK_ID $MINE; pwd -P; echo $MESOS_SANDBOX; echo bad >&2",
        "environment": {"variables": [{"name": "MINE", "value": "yes"}]},
    }
    info = await scheduler.launch("t", command)
    await scheduler.status("t", "TASK_FINISHED")
    directory = sandbox(cluster, scheduler, info)

    first, folder, variable = (directory / "stdout").read_text().splitlines()
    assert "t yes" == first
    assert str(directory.resolve()) == folder == variable
    assert "bad\n" == (directory / "stderr").read_text()


async def test_tasks_of_a_host_have_gpus_of_their_own(start: Start) -> None:
    """The variable numbers the gpus of a task; a task without gpus has none."""
    cluster, scheduler = await start((*CAPABILITIES, "GPU_RESOURCES"), hosts=(HostSpec("a0", gpus=3),))
    found = []
    for name, count in (("one", 1), ("two", 2), ("none", 0)):
        resources = [scalar("cpus", 0.1), scalar("mem", 64), *([scalar("gpus", count)] if count else [])]
        info = await scheduler.launch(name, "echo gpus $CUDA_VISIBLE_DEVICES; sleep 1000", resources=resources)
        await scheduler.status(name, "TASK_RUNNING")
        file = sandbox(cluster, scheduler, info) / "stdout"
        await written(file)
        found.append(file.read_text().strip())

    assert ["gpus 0", "gpus 1,2", "gpus"] == found


async def test_agent_serves_its_files(start: Start) -> None:
    """The paths browse, read and download serve the sandbox, and nothing else of the machine."""
    cluster, scheduler = await start()
    info = await scheduler.launch("t", "printf 0123456789")
    await scheduler.status("t", "TASK_FINISHED")
    directory = sandbox(cluster, scheduler, info).resolve()
    port = next(iter(cluster.master.registry.by_host.values())).port

    status, rows = await request(port, "GET", f"/files/browse?path={directory}")
    assert (200, {"stdout": 10, "stderr": 0}) == (status, {Path(row["path"]).name: row["size"] for row in rows})
    assert (200, {"data": "3456", "offset": 3}) == await request(
        port, "GET", f"/slave(1)/files/read?path={directory}/stdout&offset=3&length=4"
    )
    assert (200, "0123456789") == await request(port, "GET", f"/files/download?path={directory}/stdout")
    assert 404 == (await request(port, "GET", "/files/read?path=/etc/passwd&offset=0"))[0]


async def test_agent_names_the_sandbox_of_a_running_task(start: Start) -> None:
    """The state of the agent has the container and the directory of each executor, by framework."""
    cluster, scheduler = await start()
    info = await scheduler.launch("t", "sleep 1000")
    await scheduler.status("t", "TASK_RUNNING")
    directory = sandbox(cluster, scheduler, info).resolve()

    status, state = await request(cluster.master.registry.by_host["a0"].port, "GET", "/state")

    assert (200, "a0", str(cluster.settings.data_dir)) == (status, state["hostname"], state["flags"]["work_dir"])
    (framework,) = state["frameworks"]
    (executor,) = framework["executors"]
    assert (scheduler.framework_id, "t") == (framework["id"], executor["id"])
    assert (str(directory), directory.name) == (executor["directory"], executor["container"])


async def test_kill_waits_for_the_grace_period(start: Start) -> None:
    """A task that ignores SIGTERM is killed with SIGKILL afterwards; its whole group dies."""
    cluster, scheduler = await start()
    info = await scheduler.launch("t", 'trap "" TERM; sleep 1000 & echo $! > child; while :; do sleep 0.05; done')
    running = await scheduler.status("t", "TASK_RUNNING")
    child = sandbox(cluster, scheduler, info) / "child"
    await written(child)
    began = asyncio.get_running_loop().time()
    await scheduler.call("KILL", {"task_id": {"value": "t"}})

    status = await scheduler.status("t", "TASK_KILLED")

    assert "Command terminated with signal Killed" == status["message"]
    assert asyncio.get_running_loop().time() - began >= cluster.settings.kill_grace_s
    await wait_until_gone(running["container_status"]["executor_pid"])
    await wait_until_gone(int(child.read_text()))


async def test_kill_of_an_obedient_task_is_quick(start: Start) -> None:
    """The task ends on SIGTERM, whatever exit code it then chooses."""
    cluster, scheduler = await start(kill_grace_s=60.0)
    info = await scheduler.launch("t", 'trap "exit 5" TERM; echo ready; while :; do sleep 0.02; done')
    await scheduler.status("t", "TASK_RUNNING")
    await written(sandbox(cluster, scheduler, info) / "stdout")
    await scheduler.call("KILL", {"task_id": {"value": "t"}})

    assert "Command exited with status 5" == (await scheduler.status("t", "TASK_KILLED"))["message"]


async def test_a_killed_executor_takes_its_task_along(start: Start) -> None:
    """The agent reports the end itself, and both processes are gone."""
    cluster, scheduler = await start()
    info = await scheduler.launch("t", "echo $$ > pid; exec sleep 1000")
    executor = (await scheduler.status("t", "TASK_RUNNING"))["container_status"]["executor_pid"]
    pid_file = sandbox(cluster, scheduler, info) / "pid"
    await written(pid_file)

    os.kill(executor, signal.SIGKILL)

    status = await scheduler.status("t", "TASK_FAILED")
    assert ("SOURCE_AGENT", "REASON_EXECUTOR_TERMINATED", "Executor terminated") == (
        status["source"],
        status["reason"],
        status["message"],
    )
    await wait_until_gone(executor)
    await wait_until_gone(int(pid_file.read_text()))


@pytest.mark.parametrize("simulate", [False, True])
async def test_a_custom_executor_is_refused(start: Start, simulate: bool) -> None:
    """A custom executor is rejected with the reason: minicluster has no executor API."""
    _, scheduler = await start(simulate=simulate)
    offer = await scheduler.offer()
    executor = {"type": "CUSTOM", "executor_id": {"value": "thermos"}, "command": {"value": "true"}}
    info = task_info("t", offer["agent_id"]["value"], "true", executor=executor)
    del info["command"]
    await scheduler.accept(offer, info)

    status = await scheduler.status("t", "TASK_ERROR")

    assert "REASON_TASK_INVALID" == status["reason"]
    assert status["message"].startswith("Executor 'thermos' is a custom one: ")


async def test_ports_outside_the_offer_are_refused(start: Start) -> None:
    """The error shows the requested and the available ports; ports inside the offer work."""
    _, scheduler = await start()
    offer = await scheduler.offer()
    wrong = task_info("wrong", offer["agent_id"]["value"], "true")
    right = task_info("right", offer["agent_id"]["value"], "true")
    for info, port in ((wrong, 99), (right, 31001)):
        ports = {"name": "ports", "type": "RANGES", "ranges": {"range": [{"begin": port, "end": port}]}}
        info["resources"].append(ports)
    await scheduler.accept(offer, wrong, right)

    status = await scheduler.status("wrong", "TASK_ERROR")
    assert "ports(allocated: *):[99-99] required by task and its executor is more than available" in status["message"]
    await scheduler.status("right", "TASK_FINISHED")


async def test_failing_health_check_kills_the_task(start: Start) -> None:
    """Each failure is an update, and the last one kills."""
    _, scheduler = await start()
    check = {
        "type": "COMMAND", "command": {"value": "exit 1"}, "delay_seconds": 0, "interval_seconds": 0.02,
        "grace_period_seconds": 0, "consecutive_failures": 2,
    }  # fmt: skip
    await scheduler.launch("t", "sleep 1000", health_check=check)

    status = await scheduler.status("t", "TASK_KILLED")

    assert status["healthy"] is False
    expected = ["TASK_STARTING", "TASK_RUNNING", "TASK_RUNNING", "TASK_RUNNING", "TASK_KILLING", "TASK_KILLED"]
    assert expected == scheduler.states("t")


async def test_http_health_check(start: Start) -> None:
    """A server that answers is healthy."""
    _, scheduler = await start()
    (port,) = free_ports(1)
    check = {"type": "HTTP", "http": {"port": port, "path": "/"}, "delay_seconds": 0, "interval_seconds": 0.05}
    server = f"{sys.executable} -m http.server --bind 127.0.0.1 {port}"
    await scheduler.launch("t", server, health_check=check, mem=512)

    status = await scheduler.wait(lambda event: event.get("update", {}).get("status", {}).get("healthy") is True)

    assert "TASK_RUNNING" == status["update"]["status"]["state"]


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        (
            "health_check",
            {"type": "TCP", "tcp": {"port": 1}},
            "Task uses invalid health check: TCP health checks are not emulated",
        ),
        ("check", {"type": "HTTP", "http": {"port": 1}}, "Task has 'check', which is not emulated"),
        ("max_completion_time", {"nanoseconds": 1}, "Task has 'max_completion_time', which is not emulated"),
    ],
)
async def test_what_is_not_emulated_is_refused(start: Start, field: str, value: Any, text: str) -> None:
    """A task is rejected whose check or time limit would have no effect."""
    _, scheduler = await start()
    await scheduler.launch("t", "true", **{field: value})

    status = await scheduler.status("t", "TASK_ERROR")

    assert ("REASON_TASK_INVALID", text) == (status["reason"], status["message"])


async def test_uris_are_copied_and_unpacked(start: Start, tmp_path: Path) -> None:
    """Files of file:// and plain paths are copied; archives are extracted, and a missing file fails the launch."""
    (tmp_path / "inner").write_text("packed")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "inner", "inner")
    (tmp_path / "plain").write_text("plain")
    _, scheduler = await start()
    uris = [{"value": str(tmp_path / "a.tar.gz")}, {"value": f"file://{tmp_path}/plain", "executable": True}]
    await scheduler.launch("t", {"value": "test -x plain && grep packed inner", "uris": uris})
    await scheduler.status("t", "TASK_FINISHED")

    await scheduler.launch("u", {"value": "true", "uris": [{"value": "/no/such/file"}]})
    status = await scheduler.status("u", "TASK_FAILED")
    assert "REASON_CONTAINER_LAUNCH_FAILED" == status["reason"]
    assert "Failed to launch container: Failed to fetch all URIs for container '" in status["message"]


async def test_a_docker_image_runs_as_a_process(start: Start) -> None:
    """The image is ignored by default."""
    _, scheduler = await start()
    await scheduler.launch("t", "true", container={"type": "DOCKER", "docker": {"image": "x"}})

    await scheduler.status("t", "TASK_FINISHED")


async def test_the_data_of_a_secret_is_a_file(start: Start, tmp_path: Path) -> None:
    """The file has the bytes of the secret, for its user alone, in the sandbox of the task and not outside of it."""
    _, scheduler = await start()
    paths = ("/run/key", "key", f"../../../../../../../../../../..{tmp_path}/out")
    value = {"type": "SECRET", "secret": {"type": "VALUE", "value": {"data": "AHhcbv8="}}}
    volumes = [{"mode": "RO", "container_path": path, "source": value} for path in paths]
    script = 'test "$(od -An -tx1 run/key key | tr -d " \\n")" = 00785c6eff00785c6eff && test "$(stat -c %a key)" = 600'
    await scheduler.launch("t", script, container={"type": "MESOS", "volumes": volumes})

    await scheduler.status("t", "TASK_FINISHED")
    assert not (tmp_path / "out").exists()


async def test_persistent_volume_outlives_its_task(start: Start) -> None:
    """One ACCEPT has RESERVE, CREATE and LAUNCH; the next task reads the file."""
    _, scheduler = await start(("MULTI_ROLE", "PARTITION_AWARE", "RESERVATION_REFINEMENT"), roles=["web"])
    offer = await scheduler.offer()
    reserved = {**scalar("disk", 10), "reservations": [{"type": "DYNAMIC", "role": "web"}]}
    volume = {**reserved, "disk": {"persistence": {"id": "v"}, "volume": {"mode": "RW", "container_path": "data"}}}
    writer = task_info("w", offer["agent_id"]["value"], "echo kept > data/f")
    reader = task_info("r", offer["agent_id"]["value"], "grep kept data/f")
    for info in (writer, reader):
        info["resources"].append(volume)
    operations = [
        {"type": "RESERVE", "reserve": {"resources": [reserved]}},
        {"type": "CREATE", "create": {"volumes": [volume]}},
        {"type": "LAUNCH", "launch": {"task_infos": [writer]}},
    ]
    await scheduler.call("ACCEPT", {"offer_ids": [offer["id"]], "operations": operations})
    await scheduler.status("w", "TASK_FINISHED")

    def has_volume(event: dict[str, Any]) -> bool:
        return any("disk" in row for offer in event.get("offers", {}).get("offers", ()) for row in offer["resources"])

    await scheduler.wait(has_volume)
    offers = [offer for event in scheduler.events if event["type"] == "OFFERS" for offer in event["offers"]["offers"]]
    launch = {"type": "LAUNCH", "launch": {"task_infos": [reader]}}
    await scheduler.call("ACCEPT", {"offer_ids": [offer["id"] for offer in offers], "operations": [launch]})

    await scheduler.status("r", "TASK_FINISHED")


async def test_no_process_survives_stop(start: Start) -> None:
    """Orderly stop kills every group."""
    cluster, scheduler = await start()
    await scheduler.launch("t", 'trap "" TERM; while :; do sleep 0.05; done')
    pid = (await scheduler.status("t", "TASK_RUNNING"))["container_status"]["executor_pid"]
    await scheduler.close()
    await cluster.stop()

    assert not alive(pid)


async def test_no_process_survives_a_killed_minicluster(tmp_path: Path) -> None:
    """The watchdog of a minicluster that was killed with kill -9 kills the groups, even children
    that left no parent.
    """
    arguments = [sys.executable, "-m", "services.lab.mesos", "--port", "0", "--data", str(tmp_path / "d")]
    server = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        port = int((await asyncio.to_thread(server.stdout.readline)).rsplit(":", 1)[1])
        scheduler = Scheduler(port)
        await scheduler.subscribe()
        await scheduler.launch("t", "sleep 1000 & sleep 1000; true")
        pid = (await scheduler.status("t", "TASK_RUNNING"))["container_status"]["executor_pid"]
        await scheduler.close()
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()

    await wait_until_gone(pid)
    async with asyncio.timeout(WAIT_S):
        while any(session == pid for session in _sessions()):
            await asyncio.sleep(0.02)


def _sessions() -> list[int]:
    rows = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                rows.append(int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[3]))
            except OSError:
                continue
    return rows


async def test_sweep_kills_what_a_predecessor_left(tmp_path: Path) -> None:
    """Processes with the mark of the same data directory in their environment are killed, and no others."""
    environment = {**os.environ, MARK: str(tmp_path)}
    ours = subprocess.Popen(["sleep", "1000"], start_new_session=True, env=environment)
    foreign = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    (tmp_path / "process-groups").write_text(f"+ {ours.pid}\n+ {foreign.pid}\n")
    processes = Processes(tmp_path)
    try:
        async with asyncio.timeout(WAIT_S):
            while not Path(f"/proc/{ours.pid}/environ").read_bytes():  # for a moment the kernel is still loading it
                await asyncio.sleep(0.01)
        processes.start(asyncio.get_running_loop())

        assert -signal.SIGKILL == ours.wait(WAIT_S)
        assert foreign.poll() is None
    finally:
        for left in (ours, foreign):
            left.kill()
            left.wait()
        await processes.close()
