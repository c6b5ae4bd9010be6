"""The archive: objects, manifests, stores and queries."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from peloton.errors import InvalidArgument, NotFound, Unavailable
from peloton.lifecycle.retention import DAY_NS
from services.retention import stores
from services.retention.archive import LINES, MANIFEST, Archive
from services.retention.query import Filter, find_lines
from services.retention.stores import FolderStore, open_store

FIRST = 20_000 * DAY_NS + 3_600 * 10**9
DAY = date(2024, 10, 4)


def a_job(number: int, **more: Any) -> dict[str, Any]:
    return {
        "kind": "job",
        "job_name": f"train-{number % 3}",
        "pool": "/eng/maps" if number % 2 else "/engine",
        "owner": "maps",
        "job_id": f"{number:08d}-0000-4000-8000-000000000000",
        "state": "FAILED" if number % 4 == 0 else "SUCCEEDED",
        **more,
    }


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(FolderStore(tmp_path / "archive"))


def write(archive: Archive, days: int, numbers: range, group: str = "jobs") -> str:
    lines = [a_job(number) for number in numbers]
    lines += [{"kind": "config", "job_id": a_job(n)["job_id"], "version": 1, "config": {"name": "x"}} for n in numbers]
    written = archive.write(group, FIRST + days * DAY_NS, f"{numbers.start}", lines)
    assert written is not None
    return written.name


def ids(archive: Archive, limit: int = 100, **conditions: Any) -> list[int]:
    found = map(json.loads, find_lines(archive, Filter("jobs", **conditions), limit))
    return [int(line["job_id"][:8]) for line in found if line["kind"] == "job"]


def test_an_object_has_a_name_of_its_day_and_a_manifest(archive: Archive, tmp_path: Path) -> None:
    """The manifest has lines by kind, size and digest; an object with the same records has the same bytes."""
    name = write(archive, 0, range(4))
    path = tmp_path / "archive" / name
    before = path.read_bytes()

    manifest = archive.read_manifest(name)
    assert f"jobs/2024/10/04/010000.000000000-0-{manifest.sha256[:12]}.jsonl.zst" == name
    assert (8, {"config": 4, "job": 4}, path.stat().st_size) == (manifest.lines, manifest.kinds, manifest.bytes)
    assert "" == archive.find_fault(name)
    assert name == write(archive, 0, range(4))
    assert before == path.read_bytes()
    assert not list((tmp_path / "archive").rglob(".part-*"))


def test_an_object_is_never_replaced_by_another_one(archive: Archive) -> None:
    """A leader that was frozen writes its batch late, which had fewer jobs than that of its successor."""
    whole, part = write(archive, 0, range(4)), write(archive, 0, range(2))

    assert whole != part
    assert ["", ""] == [archive.find_fault(name) for name in (whole, part)]
    assert [0, 1, 2, 3] == sorted(ids(archive))


def test_a_batch_without_records_has_no_object(archive: Archive) -> None:
    """Events may be gone already when their job is due."""
    assert archive.write("jobs", FIRST, "0", []) is None
    assert [] == list(archive.list_objects())


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data[:20] + b"x" + data[21:]])
def test_damage_is_found(archive: Archive, tmp_path: Path, change: Any) -> None:
    """A truncated object and one with another byte differ from their manifests."""
    name = write(archive, 0, range(4))
    path = tmp_path / "archive" / name
    path.write_bytes(change(path.read_bytes()))

    assert "its manifest says" in archive.find_fault(name)


def test_a_manifest_that_is_no_manifest(archive: Archive, tmp_path: Path) -> None:
    """Broken and endless manifests are errors, a missing one is an error of its own."""
    name = write(archive, 0, range(1))
    path = tmp_path / "archive" / (name.removesuffix(LINES) + MANIFEST)
    path.write_text("[]")
    with pytest.raises(InvalidArgument, match="cannot be read"):
        archive.read_manifest(name)
    path.write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(InvalidArgument, match="1048577 bytes, limit 1048576"):
        archive.read_manifest(name)
    path.unlink()
    with pytest.raises(NotFound):
        archive.find_fault(name)


def test_objects_are_listed_by_class_and_day(archive: Archive) -> None:
    """Days of a range are included at both ends."""
    names = [write(archive, days, range(days, days + 1)) for days in range(4)]
    pods = write(archive, 1, range(1), "pods")

    assert sorted([*names, pods]) == sorted(archive.list_objects())
    assert names == list(archive.list_objects("jobs"))
    assert names[1:3] == list(archive.list_objects("jobs", date(2024, 10, 5), date(2024, 10, 6)))


def test_queries(archive: Archive) -> None:
    """Records are found by name, id, its beginning, pool with what is below it, owner, state and day; the newest day
    comes first."""
    write(archive, 0, range(4))
    write(archive, 1, range(4, 8))

    assert [4, 5, 6, 7, 0, 1, 2, 3] == ids(archive)
    assert [4, 5, 6] == ids(archive, limit=3)
    assert [4, 7, 1] == ids(archive, job="train-1")
    assert [6] == ids(archive, job="00000006")
    assert [2] == ids(archive, job=a_job(2)["job_id"])
    assert [] == ids(archive, job="000")
    assert [5, 7, 1, 3] == ids(archive, pool="/eng")
    assert [4, 6, 0, 2] == ids(archive, pool="/engine")
    assert [4, 0] == ids(archive, states=("FAILED",))
    assert [4, 5, 6, 7] == ids(archive, since=DAY.replace(day=5))
    assert [0, 1, 2, 3] == ids(archive, until=DAY)
    assert [] == ids(archive, owner="it's")
    whole = [json.loads(line) for line in find_lines(archive, Filter("jobs", job="00000006", is_whole=True), 10)]
    assert {("job", 6), ("config", 6)} == {(line["kind"], int(line["job_id"][:8])) for line in whole}


def test_repeated_records_are_found_once(archive: Archive) -> None:
    """A batch whose first job changed between two tries is in two objects."""
    write(archive, 0, range(4))
    write(archive, 0, range(1, 4))

    assert [1, 2, 3, 0] == ids(archive)


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    """Errors of the disk say which archive they are about."""
    (tmp_path / "file").write_text("")
    store = open_store(f"file://{tmp_path}/file")
    with pytest.raises(Unavailable, match=f"archive {tmp_path}/file cannot be written"):
        store.put("jobs/x", tmp_path / "file")
    with pytest.raises(NotFound, match="has no object jobs/x"):
        FolderStore(tmp_path).fetch("jobs/x", tmp_path / "copy")
    assert [] == list(store.names(""))


def test_an_endless_object_is_an_error(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without an end in the folder fills no disk."""
    monkeypatch.setattr(stores, "OBJECT_BYTES_MAX", 3 << 20)
    name = write(archive, 0, range(1))
    (tmp_path / "archive" / name).unlink()
    (tmp_path / "archive" / name).symlink_to("/dev/zero")

    with pytest.raises(InvalidArgument, match="has more than 3145728 bytes"):
        archive.find_fault(name)
    with pytest.raises(InvalidArgument, match="has more than 3145728 bytes"):
        ids(archive)
