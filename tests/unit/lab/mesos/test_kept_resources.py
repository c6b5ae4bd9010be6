"""Resources that an emulated agent keeps over a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from services.lab.mesos.agents.kept_resources import KeptResources, volume_folder
from services.lab.mesos.master.host_resources import total_of
from services.lab.mesos.model import Agent
from services.lab.mesos.resources import DISK, Resources, add_to, kind_of, take_from
from services.lab.shared.hosts import HostSpec

MB = 1_000
"""Thousandths."""
HOST = HostSpec("h", disk=500)
RESERVATION = [{"type": "DYNAMIC", "role": "eng/maps"}]
VOLUME = {"persistence": {"id": "v"}, "volume": {"mode": "RW", "container_path": "data"}}
ON_VOLUME = kind_of("disk", reservations=RESERVATION, disk=VOLUME)
RESERVED = kind_of("disk", reservations=RESERVATION)


def agent(total: Resources) -> Agent:
    return Agent("S0", HOST, total, cast(Any, None), 1, "slave(1)@h:1")


def with_volume(size: int = 300) -> Resources:
    total = dict(total_of(HOST))
    take_from(total, {DISK: size * MB})
    add_to(total, {ON_VOLUME: size * MB})
    return total


def test_reservations_and_volumes_are_there_again(tmp_path: Path) -> None:
    """Saved resources are restored, whatever the other settings of the host; without saved ones there are none."""
    kept = KeptResources(tmp_path)
    assert total_of(HOST) == kept.restore(HOST, total_of(HOST))
    total = with_volume()
    take_from(total, {DISK: 100 * MB})
    add_to(total, {RESERVED: 100 * MB})

    kept.save(agent(total))

    assert total == KeptResources(tmp_path).restore(HOST, total_of(HOST))


def test_a_volume_goes_with_its_disk(tmp_path: Path) -> None:
    """The folder of a volume is made once: an agent that starts without it does not have the volume, and its disk is
    free.
    """
    kept, folder = KeptResources(tmp_path), volume_folder(tmp_path, "h", "eng/maps", "v")
    kept.save(agent(with_volume()))
    assert folder.is_dir()
    folder.rmdir()

    kept.save(agent(with_volume()))

    assert (False, total_of(HOST)) == (folder.exists(), kept.restore(HOST, total_of(HOST)))


def test_files_go_with_their_volume(tmp_path: Path) -> None:
    """The files of a destroyed volume are removed; the files of other volumes stay."""
    kept = KeptResources(tmp_path)
    folders = [volume_folder(tmp_path, *at) for at in (("h", "eng/maps", "v"), ("h", "eng", "w"), ("i", "eng", "x"))]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "file").touch()

    kept.save(agent(with_volume()))

    assert [True, False, True] == [folder.exists() for folder in folders]


def test_a_host_that_has_become_too_small(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A host that has become too small keeps the resources that fit and logs the rest."""
    kept = KeptResources(tmp_path)
    kept.save(agent(with_volume()))
    smaller = total_of(HostSpec("h", disk=200))

    assert smaller == kept.restore(HOST, smaller)
    assert "host h has not enough resources left for" in caplog.text
