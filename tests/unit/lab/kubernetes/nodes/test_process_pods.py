"""Pods as processes: each story ends as on a real kubelet."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from services.lab.kubernetes.nodes.process_pods import ProcessPod
from services.lab.shared.hosts import HostSpec
from tests.present import require
from tests.unit.lab.kubernetes.nodes.conftest import NODE, WAIT_S, NodesOnStore, Start, conditions, state_of

pytestmark = pytest.mark.slow


async def test_a_pod_takes_the_steps_of_a_real_kubelet(start: Start) -> None:
    """The events equal a real kubelet's, in order: sandbox, running, containers terminated, last phase."""
    cluster = await start()
    cluster.create("ok", "exit 0")

    status = await cluster.ended("ok")

    assert [
        ("ADDED", "Pending"),
        ("MODIFIED", "Pending", "waiting ContainerCreating"),
        ("MODIFIED", "Pending", "waiting ContainerCreating"),
        ("MODIFIED", "Running", "running"),
        ("MODIFIED", "Running", "terminated Completed 0"),
        ("MODIFIED", "Succeeded", "terminated Completed 0"),
    ] == cluster.history("ok")
    assert {
        "PodReadyToStartContainers": ("False", ""),
        "Initialized": ("True", "PodCompleted"),
        "Ready": ("False", "PodCompleted"),
        "ContainersReady": ("False", "PodCompleted"),
        "PodScheduled": ("True", ""),
    } == conditions(status)
    assert "BestEffort" == status["qosClass"]


@pytest.mark.parametrize(
    ("command", "phase", "state"),
    [
        ("exit 3", "Failed", "terminated Error 3"),
        ("kill -9 $$$$", "Failed", "terminated Error 137"),
    ],
)
async def test_exit_codes(start: Start, command: str, phase: str, state: str) -> None:
    """A signal counts as 128 and its number."""
    cluster = await start()
    cluster.create("pod", command)

    status = await cluster.ended("pod")

    assert (phase, state) == (status["phase"], state_of(status["containerStatuses"][0]))


async def test_a_command_that_does_not_exist_is_a_start_error(start: Start) -> None:
    """The pod fails without having run."""
    cluster = await start()
    cluster.create("pod", container={"command": ["/no/such/file"]})

    status = await cluster.ended("pod")

    assert "terminated StartError 128" == state_of(status["containerStatuses"][0])
    assert "/no/such/file" in status["containerStatuses"][0]["state"]["terminated"]["message"]
    assert "Running" not in [phase for _, phase, *states in cluster.history("pod") if states == ["running"]]


async def test_environment_and_arguments(start: Start) -> None:
    """Variables, fields of the pod, keys of secrets, and $(NAME) in commands."""
    cluster = await start()
    cluster.store.create("secrets", {"metadata": {"name": "s", "namespace": "default"}, "data": {"k": "aHVzaA=="}})
    env = [
        {"name": "PLAIN", "value": "a"},
        {"name": "JOINED", "value": "$(PLAIN)-b $$(PLAIN)"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    joined = "test \"$JOINED\" = 'a-b $$(PLAIN)'"
    script = f'{joined} && test "$NODE" = node-0 && test "$SECRET" = hush && test "$0" = a'
    cluster.create("pod", container={"command": ["/bin/sh", "-c", script], "args": ["$(PLAIN)"], "env": env})

    assert "Succeeded" == (await cluster.ended("pod"))["phase"]


async def test_pods_of_a_node_have_gpus_of_their_own(start: Start) -> None:
    """The variable numbers the gpus of a pod; they are free when it has ended."""
    cluster = await start(hosts=(HostSpec(NODE, gpus=2),))
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    cluster.create("first", 'test "$CUDA_VISIBLE_DEVICES" = 0 && sleep 1000', container={"resources": resources})
    await cluster.until(lambda: any("running" in states for _, _, *states in cluster.history("first")))
    for name in ("second", "third"):
        cluster.create(name, 'test "$CUDA_VISIBLE_DEVICES" = 1', container={"resources": resources})
        assert "Succeeded" == (await cluster.ended(name))["phase"]


async def test_a_secret_that_is_missing_is_waited_for(start: Start) -> None:
    """The container cannot be made before it is there."""
    cluster = await start(time_scale=20.0)
    env = [{"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    cluster.create("pod", container={"env": env})
    await cluster.until(lambda: ("MODIFIED", "Pending", "waiting CreateContainerConfigError") in cluster.history("pod"))

    cluster.store.create("secrets", {"metadata": {"name": "s", "namespace": "default"}, "data": {"k": "aHVzaA=="}})

    assert "Succeeded" == (await cluster.ended("pod"))["phase"]


async def test_memory_beyond_the_limit_is_killed(start: Start) -> None:
    """The container is OOMKilled, with exit code 137."""
    cluster = await start(usage_interval_s=0.05)
    script = "x=$(head -c 60000000 /dev/zero | tr '\\0' x); sleep 1000"
    cluster.create("pod", script, container={"resources": {"limits": {"memory": "32Mi"}}})

    status = await cluster.ended("pod")

    assert "terminated OOMKilled 137" == state_of(status["containerStatuses"][0])


async def test_init_containers_run_in_order_before_the_others(start: Start) -> None:
    """The main container sees the files that the init containers wrote, in their order."""
    cluster = await start()
    shared = [{"name": "v", "mountPath": "/v"}]
    init = [
        {"name": name, "image": "b", "command": ["/bin/sh", "-c", f"echo {name} >> v/f"], "volumeMounts": shared}
        for name in ("one", "two")
    ]
    script = 'test "$(cat v/f)" = "one\ntwo"'
    volumes = [{"name": "v", "emptyDir": {}}]
    cluster.create("pod", script, initContainers=init, volumes=volumes, container={"volumeMounts": shared})

    status = await cluster.ended("pod")

    assert "Succeeded" == status["phase"]
    assert ["terminated Completed 0"] * 2 == [state_of(row) for row in status["initContainerStatuses"]]


async def test_a_key_of_a_secret_is_a_file(start: Start) -> None:
    """The file has the bytes of the key."""
    cluster = await start()
    cluster.store.create("secrets", {"metadata": {"name": "s", "namespace": "default"}, "data": {"k": "AHhcbv8="}})
    mounts = [{"name": "v", "mountPath": "/run/key", "subPath": "k"}]
    script = 'test "$(od -An -tx1 run/key | tr -d " ")" = 00785c6eff'
    volumes = [{"name": "v", "secret": {"secretName": "s"}}]
    cluster.create("pod", script, volumes=volumes, container={"volumeMounts": mounts})

    assert "Succeeded" == (await cluster.ended("pod"))["phase"]


async def test_an_init_container_that_fails_ends_the_pod(start: Start) -> None:
    """The main container never starts."""
    cluster = await start()
    cluster.create("pod", initContainers=[{"name": "i", "image": "b", "command": ["/bin/sh", "-c", "exit 5"]}])

    status = await cluster.ended("pod")

    assert ("Failed", "waiting PodInitializing") == (status["phase"], state_of(status["containerStatuses"][0]))
    assert ("False", "ContainersNotInitialized") == conditions(status)["Initialized"]
    assert "terminated Error 5" == state_of(status["initContainerStatuses"][0])


async def test_two_containers_end_together(start: Start) -> None:
    """The pod fails only when both have ended."""
    cluster = await start()
    side = {"name": "side", "image": "b", "command": ["/bin/sh", "-c", "read x < /dev/null; sleep 0.2; exit 4"]}
    cluster.create("pod", "exit 0", more=[side])

    status = await cluster.ended("pod")

    assert ["terminated Completed 0", "terminated Error 4"] == [state_of(row) for row in status["containerStatuses"]]
    assert "Failed" == status["phase"]
    assert ("MODIFIED", "Running", "terminated Completed 0", "running") in cluster.history("pod")


async def test_a_restart_policy_starts_a_container_again(start: Start) -> None:
    """A container with the policy OnFailure runs until it succeeds, with a pause before the second restart."""
    cluster = await start(time_scale=50.0)
    script = "echo x >> tries; test $(wc -l < tries) -eq 3"
    cluster.create("pod", script, restartPolicy="OnFailure")

    status = await cluster.ended("pod")

    assert ("Succeeded", 2) == (status["phase"], status["containerStatuses"][0]["restartCount"])
    assert "terminated Error 1" == state_of({"state": status["containerStatuses"][0]["lastState"]})
    assert ("MODIFIED", "Running", "waiting CrashLoopBackOff") in cluster.history("pod")


async def test_a_graceful_deletion(start: Start) -> None:
    """The command answers SIGTERM: its exit code is in the last state before the pod is gone."""
    cluster = await start()
    cluster.create("pod", "trap 'exit 7' TERM; touch ready; while :; do sleep 0.05; done")
    await cluster.running("pod")
    pod = the_pod(cluster)
    await _there(pod.folder / "containers/main/ready")

    cluster.delete("pod", grace_s=60)
    await cluster.gone("pod")

    assert [
        ("MODIFIED", "Failed", "terminated Error 7"),
        ("MODIFIED", "Failed", "terminated Error 7"),
        ("DELETED", "Failed", "terminated Error 7"),
    ] == cluster.history("pod")[-3:]
    assert not pod.folder.exists()


async def test_who_ignores_sigterm_is_killed_after_the_grace(start: Start) -> None:
    """The last state has exit code 137."""
    cluster = await start(time_scale=20.0)
    cluster.create("pod", "trap '' TERM; touch ready; while :; do sleep 0.05; done")
    await cluster.running("pod")
    pod = the_pod(cluster)
    await _there(pod.folder / "containers/main/ready")

    cluster.delete("pod", grace_s=1)
    await cluster.gone("pod")

    assert ("DELETED", "Failed", "terminated Error 137") == cluster.history("pod")[-1]


async def test_a_forced_deletion_kills_without_a_word(start: Start) -> None:
    """The object is deleted in phase Running, and its processes end."""
    cluster = await start()
    cluster.create("pod", "echo $$ > pid; exec sleep 1000")
    await cluster.running("pod")
    pod = the_pod(cluster)
    process = require(pod._main[0].pid)

    cluster.store.delete("pods", "default", "pod")

    assert ("DELETED", "Running", "running") == cluster.history("pod")[-1]
    descriptor = os.pidfd_open(process)
    try:
        await _wait_for_end(descriptor)
    finally:
        os.close(descriptor)


async def test_a_deadline_ends_the_pod(start: Start) -> None:
    """The reason is DeadlineExceeded."""
    cluster = await start(time_scale=10.0)
    cluster.create("pod", "sleep 1000", activeDeadlineSeconds=3)

    status = await cluster.ended("pod")

    assert ("Failed", "DeadlineExceeded") == (status["phase"], status["reason"])
    assert ("False", "PodFailed") == conditions(status)["Ready"]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"container": {"resources": {"requests": {"cpu": "4001m"}}}}, "OutOfcpu"),
        ({"container": {"resources": {"requests": {"memory": "3Gi"}}}}, "OutOfmemory"),
        ({"container": {"resources": {"requests": {"nvidia.com/gpu": "1"}}}}, "OutOfnvidia.com/gpu"),
        ({"nodeSelector": {"zone": "b"}}, "NodeAffinity"),
    ],
)
async def test_what_a_node_refuses(start: Start, spec: dict[str, Any], reason: str) -> None:
    """A rejected pod has failed at once, without a status of any container."""
    cluster = await start()
    cluster.create("pod", **spec)

    status = await cluster.ended("pod")

    assert ("Failed", reason) == (status["phase"], status["reason"])
    assert "containerStatuses" not in status


async def test_the_capacity_of_a_pod_is_free_again_after_its_end(start: Start) -> None:
    """The resources of a pod are free after its end, and not before."""
    cluster = await start()
    half = {"resources": {"requests": {"cpu": "3"}}}
    cluster.create("first", "sleep 1000", container=half)
    await cluster.running("first")
    cluster.create("second", container=half)

    assert "OutOfcpu" == (await cluster.ended("second"))["reason"]
    cluster.delete("first")
    await cluster.gone("first")
    cluster.create("third", container=half)
    assert "Succeeded" == (await cluster.ended("third"))["phase"]


async def test_an_image_that_is_absent_keeps_the_pod_pending(start: Start) -> None:
    """A pod without its image stays pending until it is deleted; then it has failed, without having run."""
    cluster = await start(time_scale=20.0)
    cluster.create("pod", container={"image": "registry/absent:1"})
    await cluster.until(lambda: ("MODIFIED", "Pending", "waiting ImagePullBackOff") in cluster.history("pod"))

    cluster.delete("pod")
    await cluster.gone("pod")

    assert ("DELETED", "Failed", "terminated ContainerStatusUnknown 137") == cluster.history("pod")[-1]


async def test_readiness_follows_its_probe(start: Start) -> None:
    """The pod is ready once the probe succeeds, and the container runs before."""
    cluster = await start(time_scale=10.0)
    probe = {"exec": {"command": ["test", "-e", "ready"]}, "periodSeconds": 1, "timeoutSeconds": 50}
    cluster.create("pod", "sleep 1000", container={"readinessProbe": probe})
    status = await cluster.running("pod")
    assert ("False", "ContainersNotReady") == conditions(status)["Ready"]

    pod = the_pod(cluster)
    (pod.folder / "containers/main/ready").touch()
    await cluster.until(lambda: conditions(cluster.status("pod"))["Ready"][0] == "True")


async def test_liveness_kills_a_container(start: Start) -> None:
    """A container whose liveness probe fails is killed; the status has the signal, as its restart policy is Never."""
    cluster = await start(time_scale=10.0)
    probe = {"tcpSocket": {"port": 1}, "periodSeconds": 1, "failureThreshold": 2}
    cluster.create("pod", "sleep 1000", container={"livenessProbe": probe})

    status = await cluster.ended("pod")

    assert "terminated Error 143" == state_of(status["containerStatuses"][0])


async def test_pods_of_a_machine_that_was_booted_have_failed_by_disruption(start: Start) -> None:
    """Processes end with the emulation, so their pods have failed; pods that had not started run now."""
    first = await start()
    first.create("ran", "sleep 1000")
    await first.running("ran")
    await first.close()
    first.create("waits")

    second = await start(store=first.store)

    status = await second.ended("ran")
    assert ("Failed", "terminated ContainerStatusUnknown 137") == (
        status["phase"],
        state_of(status["containerStatuses"][0]),
    )
    assert ("True", "TerminationByKubelet") == conditions(status)["DisruptionTarget"]
    assert "Succeeded" == (await second.ended("waits"))["phase"]


async def test_a_node_that_stops_writes_nothing(start: Start) -> None:
    """The pods of a stopped node keep their phase until the node returns; the other node continues."""
    cluster = await start()
    cluster.create("lost", "sleep 1000")
    await cluster.running("lost")

    cluster.nodes.stop("node-0")
    cluster.create("other", node="node-1")
    assert "Succeeded" == (await cluster.ended("other"))["phase"]
    assert "Running" == cluster.status("lost")["phase"]

    cluster.nodes.boot("node-0")
    assert "Failed" == (await cluster.ended("lost"))["phase"]


def the_pod(cluster: NodesOnStore) -> ProcessPod:
    pod = cluster.nodes.pod("node-0", cluster.body("pod")["metadata"]["uid"])
    assert isinstance(pod, ProcessPod)
    return pod


async def _there(path: Path) -> None:
    async with asyncio.timeout(WAIT_S):
        while not path.exists():
            await asyncio.sleep(0.01)


async def _wait_for_end(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    loop.add_reader(descriptor, done.set)
    try:
        async with asyncio.timeout(WAIT_S):
            await done.wait()
    finally:
        loop.remove_reader(descriptor)
