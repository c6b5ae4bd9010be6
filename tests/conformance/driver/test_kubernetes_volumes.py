"""Volumes of pods as folders of nodes of Kubernetes."""

from __future__ import annotations

import http.client
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peloton.model.pod import Cause, PodState
from peloton.model.volume import VolumeRecord, VolumeState
from services.hostmgr.driver import HostLaunch, PodOnHost
from services.hostmgr.kubernetes.apiserver.wire import MERGE_PATCH
from services.hostmgr.kubernetes.pods import missing_folders
from services.lab.shared.hosts import HostSpec
from tests.conformance.driver.kubernetes import EmulatedPlane, EmulatedProcess, Kubernetes, Plane, SharedPlane
from tests.conformance.driver.lab import Lab, lab_on
from tests.conformance.driver.test_volumes import TASK, a_volume, is_destroyed, is_listed, is_offered, launch
from tests.kubernetes.fixtures import REAL_KUBERNETES

WRITES = "echo $PELOTON_TASK_ID >> data/log; sleep 300"
ON_BOTH = pytest.mark.parametrize("cluster", ["emulated", pytest.param("real", marks=REAL_KUBERNETES)], indirect=True)
REAL = pytest.mark.parametrize("cluster", [pytest.param("real", marks=REAL_KUBERNETES)], indirect=True)


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path, emulated_process: EmulatedProcess) -> Iterator[Kubernetes]:
    kind = getattr(request, "param", "emulated")
    plane: Plane = emulated_process
    if kind == "real":
        plane = SharedPlane(request.getfixturevalue("kubernetes"), tmp_path)
    elif kind == "processes":
        plane = EmulatedPlane(tmp_path, (HostSpec("h0"),))
    settings: dict[str, Any] = {"volumes": ""} if kind == "none" else {}
    made = Kubernetes(plane, is_shared=kind != "processes", **settings)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def lab(cluster: Kubernetes) -> Iterator[Lab]:
    with lab_on(cluster) as made:
        yield made


def shown(cluster: Kubernetes, volume: VolumeRecord) -> str | None:
    """The record of the volume on its node."""
    found = cluster.client.ask("GET", f"/api/v1/nodes/{volume.host}").json()["metadata"].get("annotations") or {}
    text: str | None = found.get(f"peloton.io/volume-{volume.volume_id}")
    return text


def try_launch(lab: Lab, volume: VolumeRecord) -> tuple[PodOnHost, str]:
    """A pod with it, and why the cluster certainly did not take it."""
    pod = lab.pod(lab.template(WRITES, **TASK))._replace(volume=volume)
    claim = lab.claim_of(volume.host, cpu=1)
    failed = dict(lab.driver.launch([HostLaunch(claim, [pod])]))
    return PodOnHost(pod.pod_id, claim.hostname, claim.host_id), failed.get(pod.pod_id, "")


def folder_types(cluster: Kubernetes) -> list[Any]:
    """Folder types of the volumes of all pods, in the order of their instances."""
    pods = cluster.client.ask("GET", f"/api/v1/namespaces/{cluster.namespace}/pods").json()["items"]
    pods.sort(key=lambda pod: pod["metadata"]["name"])
    return [volume["hostPath"] for pod in pods for volume in pod["spec"].get("volumes", ())]


@ON_BOTH
def test_a_folder_is_made_for_the_first_pod_only(lab: Lab, cluster: Kubernetes) -> None:
    """Later pods require the folder as it was left. The node lists its volumes, and a pod names its volume."""
    volume = a_volume(lab, lab.host_with_free(cpu=1))
    path = f"{cluster.settings.volumes}/{volume.volume_id}"

    first = launch(lab, volume)

    assert [{"path": path, "type": "DirectoryOrCreate"}] == folder_types(cluster)
    lab.wait(lambda: shown(cluster, volume) == "1000Mi kept", "the word of the node")
    selected = f"/api/v1/namespaces/{cluster.namespace}/pods?labelSelector=peloton.io%2Fvolume%3D{volume.volume_id}"
    items = cluster.client.ask("GET", selected).json()["items"]
    assert [str(first.pod_id)] == [item["metadata"]["name"] for item in items]
    lab.driver.kill([first])
    lab.wait_end(first)
    lab.wait(lambda: is_offered(lab, volume), "free resources with the volume")
    launch(lab, replace(volume, state=VolumeState.CREATED))
    assert [{"path": path, "type": "Directory"}] == folder_types(cluster)


def lines(file: Path) -> list[str]:
    """None before a process has written the first; its pod is RUNNING a moment earlier."""
    return file.read_text().split() if file.exists() else []


@pytest.mark.parametrize("cluster", ["processes"], indirect=True)
def test_what_is_in_the_folder_outlives_pods_until_it_is_destroyed(
    lab: Lab, cluster: Kubernetes, tmp_path: Path
) -> None:
    """A folder that is gone for a moment is not replaced: its pod waits for it."""
    volume = a_volume(lab, "h0")
    folder = tmp_path / "nodes/nodes/h0" / cluster.settings.volumes.lstrip("/") / volume.volume_id
    for count in (1, 2):
        pod, why = try_launch(lab, volume)
        assert "" == why
        lab.wait_for(pod, PodState.RUNNING)
        lab.wait(lambda count=count: len(lines(folder / "log")) == count, f"{count} lines")
        lab.wait(lambda: shown(cluster, volume) == "1000Mi kept", "the word of the node")
        lab.driver.kill([pod])
        lab.wait_end(pod)
        lab.wait(lambda: is_offered(lab, volume), "free resources with the volume")

    moved = shutil.move(folder, tmp_path / "away")
    pod, why = try_launch(lab, replace(volume, state=VolumeState.CREATED))
    assert ("", []) == (why, lab.states(pod))
    shutil.move(moved, folder)
    lab.wait_for(pod, PodState.RUNNING)
    assert 2 <= len(lines(folder / "log"))
    lab.driver.kill([pod])
    lab.wait_end(pod)

    lab.wait(lambda: is_destroyed(lab, volume), "the end of the volume")
    # The annotation goes before the pod that removed the folder is deleted.
    lab.wait(lambda: not folder_types(cluster), "the deletion of the pod that removed the folder")
    assert (None, False) == (shown(cluster, volume), folder.exists())


@pytest.mark.parametrize("cluster", ["processes"], indirect=True)
def test_a_folder_that_stays_away_is_lost(
    lab: Lab, cluster: Kubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node reports a lost folder, the pod that waited for it is LOST with the kubelet's message, and no folder is
    made in its place. An operator who has restored it marks it as present."""
    monkeypatch.setattr(missing_folders, "WAIT_S", 0.0)
    monkeypatch.setattr(missing_folders, "POLL_PERIOD_S", 0.0)
    volume = a_volume(lab, "h0")
    folder = tmp_path / "nodes/nodes/h0" / cluster.settings.volumes.lstrip("/") / volume.volume_id
    pod = launch(lab, volume)
    lab.wait(lambda: shown(cluster, volume) == "1000Mi kept", "the word of the node")
    lab.driver.kill([pod])
    lab.wait_end(pod)
    lab.wait(lambda: is_offered(lab, volume), "free resources with the volume")
    kept, moved = replace(volume, state=VolumeState.CREATED), shutil.move(folder, tmp_path / "away")

    pod, why = try_launch(lab, kept)
    assert "" == why
    lab.wait(lambda: PodState.LOST in lab.states(pod), "the loss")

    assert "1000Mi gone" == shown(cluster, volume)
    assert not folder.exists()
    lab.wait(lambda: not is_listed(lab, volume), "the list of the node")
    # The lost pod uses the volume until the apiserver has deleted it.
    lab.wait(lambda: "is gone from node h0" in try_launch(lab, kept)[1], "the refusal of the volume")
    shutil.move(moved, folder)
    annotation = {"metadata": {"annotations": {f"peloton.io/volume-{volume.volume_id}": "1000Mi kept"}}}
    assert 200 == cluster.client.ask("PATCH", "/api/v1/nodes/h0", annotation, MERGE_PATCH).status
    lab.wait(lambda: is_offered(lab, volume), "free resources with the volume")
    launch(lab, kept)


@ON_BOTH
def test_a_volume_is_never_in_two_pods(lab: Lab) -> None:
    """A second launch with the volume is refused, with the pod that has it."""
    volume = a_volume(lab, lab.host_with_free(cpu=1))
    first = launch(lab, volume)

    _, why = try_launch(lab, replace(volume, state=VolumeState.CREATED))

    assert True is why.startswith(f"volume {volume.volume_id} of 1000 MB is in use: pod ")
    assert True is why.endswith(f"/{first.pod_id} has it")


def test_a_volume_that_a_dead_host_manager_left_gets_its_pod(lab: Lab, cluster: Kubernetes) -> None:
    """The next launch makes the folder and takes the disk once, after a death between the node's record and the pod."""
    host = lab.host_with_free(cpu=1)
    before = lab.free(host)
    volume = a_volume(lab, host)
    annotations = {f"peloton.io/volume-{volume.volume_id}": "1000Mi new"}
    cluster.patch(f"/api/v1/nodes/{host}", {"metadata": {"annotations": annotations}})
    lab.wait(lambda: is_offered(lab, volume), "the volume")

    pod = launch(lab, volume)

    assert ["DirectoryOrCreate"] == [each["type"] for each in folder_types(cluster)]
    lab.driver.kill([pod])
    lab.wait_end(pod)
    lab.wait(lambda: lab.free(host).disk_mib == before.disk_mib - volume.size_mib, "the disk beside it")


@ON_BOTH
def test_a_pod_that_is_not_taken_leaves_no_volume(lab: Lab, cluster: Kubernetes) -> None:
    """A quota refuses the pod after its node has said that it keeps the volume: it may be made elsewhere."""
    path = f"/api/v1/namespaces/{cluster.namespace}/resourcequotas"
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one"}, "spec": {"hard": {"pods": "0"}}}
    assert http.client.CREATED == cluster.client.ask("POST", path, quota).status
    lab.wait(
        lambda: cluster.client.ask("GET", f"{path}/one").json().get("status", {}).get("hard"), "a quota that counts"
    )
    host = lab.host_with_free(cpu=1)
    before = lab.free(host)
    volume = a_volume(lab, host)

    _, why = try_launch(lab, volume)

    assert True is ("exceeded quota" in why)
    assert None is shown(cluster, volume)
    lab.wait(lambda: lab.free(host) == before, "all free resources again")


@REAL
def test_a_namespace_with_pod_security_takes_no_such_pods(lab: Lab, cluster: Kubernetes) -> None:
    """The pod fails with the words of Kubernetes, and others run."""
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    cluster.patch(f"/api/v1/namespaces/{cluster.namespace}", {"metadata": {"labels": labels}})
    volume = a_volume(lab, lab.host_with_free(cpu=1))

    pod, why = try_launch(lab, volume)

    assert "" == why
    status = lab.wait_for(pod, PodState.FAILED).status
    assert status is not None
    assert (Cause.INVALID, True) == (status.cause, 'violates PodSecurity "baseline:latest": hostPath' in status.message)
    lab.running()


def test_a_node_that_is_made_again_has_no_volumes(lab: Lab, cluster: Kubernetes) -> None:
    """A node that is deleted and created again has lost its volumes; an operator's mark restores them."""
    volume = a_volume(lab, lab.host_with_free(cpu=1))
    pod = launch(lab, volume)
    lab.wait(lambda: shown(cluster, volume) == "1000Mi kept", "the word of the node")
    path = f"/api/v1/nodes/{volume.host}"
    body = cluster.client.ask("GET", path).json()

    cluster.client.ask("DELETE", path)
    lab.wait_end(pod)
    lab.wait(lambda: volume.host not in lab.events.hosts, "the end of the host")
    meta = {"name": volume.host, "labels": body["metadata"]["labels"]}
    assert http.client.CREATED == cluster.client.ask("POST", "/api/v1/nodes", {**body, "metadata": meta}).status

    lab.wait(lambda: volume.host in lab.events.hosts, "the host")
    assert not is_listed(lab, volume)
    annotations = {f"peloton.io/volume-{volume.volume_id}": "1000Mi kept"}
    cluster.patch(path, {"metadata": {"annotations": annotations}})
    lab.wait(lambda: is_listed(lab, volume), "the volume")


@pytest.mark.parametrize("cluster", ["none"], indirect=True)
def test_without_a_folder_for_them_nodes_keep_none(lab: Lab) -> None:
    """The setting is named, whatever is asked for."""
    assert not lab.driver.capabilities.keeps_volumes
    volume = a_volume(lab, lab.host_with_free(cpu=1))

    _, why = try_launch(lab, volume)

    text = "nodes of this cluster keep no volumes: PELOTON_KUBERNETES_VOLUMES is not set"
    assert text == why
    with pytest.raises(OSError, match=text):
        lab.driver.destroy_volume(volume)
