"""Requirements on a driver of a cluster whose hosts keep volumes."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from peloton.lifecycle.volumes import volume_label
from peloton.model.pod import PodState
from peloton.model.volume import HERE, VolumeRecord, VolumeState
from services.hostmgr.driver import HostLaunch, PodOnHost
from tests.conformance.driver.lab import Lab

SIZE_MB = 1_000
TASK: dict[str, Any] = {"volume": {"containerPath": "data", "sizeMB": SIZE_MB}}


def a_volume(lab: Lab, host: str) -> VolumeRecord:
    """A volume that no host has yet."""
    job_id = lab.pod(lab.template()).pod_id.job_id
    state = VolumeState.INITIALIZED
    return VolumeRecord(str(uuid.uuid4()), job_id, 0, 1, "pool", "local", host, "data", SIZE_MB, state)


def need_volumes(lab: Lab) -> None:
    if not lab.driver.capabilities.keeps_volumes:
        pytest.skip("hosts of this cluster keep no volumes")


def launch(lab: Lab, volume: VolumeRecord) -> PodOnHost:
    """A pod with the volume, which runs."""
    pod = lab.pod(lab.template(**TASK))._replace(volume=volume)
    claim = lab.claim_of(volume.host, cpu=1)
    assert [] == lab.driver.launch([HostLaunch(claim, [pod])])
    placed = PodOnHost(pod.pod_id, claim.hostname, claim.host_id)
    lab.wait_for(placed, PodState.RUNNING)
    return placed


def is_offered(lab: Lab, volume: VolumeRecord) -> bool:
    return any(volume.volume_id in announced.volumes for announced in lab.free_resources(volume.host))


def is_listed(lab: Lab, volume: VolumeRecord) -> bool:
    host = lab.events.hosts.get(volume.host)
    return host is not None and volume.volume_id in (host.volumes or ())


def test_a_volume_outlives_its_pod_and_its_host(lab: Lab) -> None:
    """The host lists the volume, with its label; offers have it while no pod does; its disk is taken until it is
    destroyed."""
    need_volumes(lab)
    host = lab.host_with_free(cpu=1)
    before = lab.free(host)
    volume = a_volume(lab, host)

    first = launch(lab, volume)

    volume = replace(volume, state=VolumeState.CREATED)
    lab.wait(lambda: is_listed(lab, volume), "the list of the host")
    assert HERE == lab.events.hosts[host].labels[volume_label(volume.volume_id)]
    assert not is_offered(lab, volume)
    lab.driver.kill([first])
    lab.wait_end(first)
    lab.wait(lambda: is_offered(lab, volume), "free resources with the volume")
    lab.wait(lambda: lab.free(host).disk_mib == before.disk_mib - SIZE_MB, "the disk beside it")
    second = launch(lab, volume)
    if lab.cluster.can_lose_hosts:
        lab.cluster.lose_host(host)
        lab.wait_end(second)
        lab.wait(lambda: host not in lab.events.hosts, "the loss of the host")
        lab.cluster.bring_back_host(host)
    else:
        lab.driver.kill([second])
        lab.wait_end(second)
    lab.wait(lambda: is_listed(lab, volume) and is_offered(lab, volume), "the volume on its host")

    lab.wait(lambda: is_destroyed(lab, volume), "the end of the volume")
    lab.wait(lambda: lab.free(host) == before, "its disk")


def is_destroyed(lab: Lab, volume: VolumeRecord) -> bool:
    """Request the destruction, as the controller does, until the host has nothing of the volume; return whether it is
    gone."""
    host = lab.events.hosts.get(volume.host)
    if host is not None and volume.volume_id not in (host.volumes or ()) and volume.volume_id not in host.volumes_begun:
        return True
    try:
        lab.driver.destroy_volume(volume)
    except OSError:
        return False
    return False


def test_a_volume_in_use_is_not_destroyed(lab: Lab) -> None:
    """A volume in use is not destroyed for any caller; its pod runs on."""
    need_volumes(lab)
    volume = a_volume(lab, lab.host_with_free(cpu=1))
    pod = launch(lab, volume)
    lab.wait(lambda: is_listed(lab, volume), "the list of the host")

    with pytest.raises(OSError, match=r"in use|HTTP 409"):
        lab.driver.destroy_volume(volume)

    lab.reconcile([pod])
    assert [] == [state for state in lab.states(pod) if state is PodState.LOST]
    lab.wait(lambda: is_listed(lab, volume), "the volume")


def test_nothing_takes_the_place_of_a_volume_that_is_gone(lab: Lab) -> None:
    """A pod whose volume was there before is not launched without it."""
    need_volumes(lab)
    host = lab.host_with_free(cpu=1)
    before = lab.free(host)
    volume = replace(a_volume(lab, host), state=VolumeState.CREATED)
    pod = lab.pod(lab.template(**TASK))._replace(volume=volume)
    claim = lab.claim_of(host, cpu=1)

    failed = lab.driver.launch([HostLaunch(claim, [pod])])

    assert lab.has_given_back(PodOnHost(pod.pod_id, claim.hostname, claim.host_id), failed)
    lab.wait(lambda: lab.free(host) == before, "all free resources again")
