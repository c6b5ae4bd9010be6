"""``peloton archive`` and ``peloton admin retention``: printed texts, formats and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from peloton.api.v0.retention import retention_pb2 as pb
from peloton.lifecycle.retention import DAY_NS
from services.retention.archive import Archive
from services.retention.stores import FolderStore
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

JOB = "4b7c0c3e-9d57-4f52-8f0e-b6ff0a1f7c11"
LINES = [
    {
        "kind": "job",
        "job_id": JOB,
        "job_name": "train\x1b[31m",
        "pool": "/eng",
        "owner": "maps",
        "state": "FAILED",
        "instance_count": 2,
        "created_time": "2024-10-04T00:00:00.5Z",
        "completed_time": "2024-10-04T01:00:00Z",
    },
    {"kind": "config", "job_id": JOB, "job_name": "train", "version": 1, "config": {"name": "train"}},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Archive(FolderStore(tmp_path / "archive")).write("jobs", 20_000 * DAY_NS, "0", LINES)
    return tmp_path / "archive"


def test_a_job_is_found(run: Run, folder: Path) -> None:
    """The table has one line for a job, without control characters; JSON has all its records."""
    lines = run(f"archive query --job {JOB} --archive {folder}").stdout.splitlines()
    assert ["Job", "Name", "Pool", "Owner", "State", "Instances", "Created", "Completed"] == lines[0].split()
    assert [JOB, r"train\x1b[31m", "/eng", "maps", "FAILED", "2", "2024-10-04T00:00:00Z", "2024-10-04T01:00:00Z"] == (
        lines[1].split()
    )
    assert LINES == json.loads(run(f"archive query --state failed --archive {folder} --json").stdout)
    assert f"{JOB}\n" == run(f"-o name archive query --archive {folder}").stdout
    assert "The archive has no such job\n" == run(f"archive query --owner x --archive {folder}").stdout
    assert "The first 1 are shown" in run(f"archive query --limit 1 --archive {folder}").stdout


def test_days_bound_a_query(run: Run, folder: Path) -> None:
    """Days are those on which jobs ended."""
    assert JOB in run(f"archive query --since 2024-10-04 --until 2024-10-04 --archive {folder}").stdout
    assert JOB not in run(f"archive query --since 2024-10-05 --archive {folder}").stdout


def test_objects_are_listed_and_verified(run: Run, folder: Path) -> None:
    """A damaged object is named, with exit code 1; one without a manifest is no fault."""
    name = next((folder / "jobs").rglob("*.jsonl.zst")).relative_to(folder).as_posix()
    assert f"Object\n{name}\n" == run(f"archive list --archive {folder}").stdout
    assert "1 objects are as their manifests say\n" == run(f"archive verify jobs --archive {folder}").stdout
    (folder / name).write_bytes(b"x")

    damaged = run(f"archive verify --archive {folder}")
    assert 1 == damaged.exit_code
    assert f"{name} has 1 bytes, its manifest says" in damaged.stdout
    assert "1 of 1 objects are damaged" in damaged.stderr
    next(folder.rglob("*.manifest.json")).unlink()
    unfinished = run(f"archive verify --archive {folder}")
    assert 0 == unfinished.exit_code
    assert "has no manifest: its records are in the database, or in another object" in unfinished.stderr


def test_no_archive_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the setting and the option."""
    monkeypatch.delenv("PELOTON_ARCHIVE", raising=False)

    result = run("archive list")

    assert 1 == result.exit_code
    assert "no archive is named: set PELOTON_ARCHIVE, or give --archive" in result.stderr


def test_classes_of_retention(run: Run, api: FakeApi) -> None:
    """Unknown sizes are question marks; a bounded count of what is due has a plus."""
    api.answers["retention.GetRetention"] = [
        pb.GetRetentionResponse(
            classes=[
                pb.RecordClass(
                    name="jobs",
                    rule="after their end",
                    days=30,
                    is_archived=True,
                    row_count=12,
                    byte_count=3 << 20,
                    due_count=10_000,
                    deleted_count=7,
                    archived_bytes=1 << 19,
                    last_round_time="2026-11-26T10:00:00Z",
                ),
                pb.RecordClass(name="updates", rule="10 of a service", row_count=-1, byte_count=-1),
            ],
            archive="s3://bucket/peloton",
            period_s=600,
        )
    ]

    lines = run("-o wide admin retention").stdout.splitlines()

    assert ["jobs", "30", "12", "3.0", "10000+", "7", "0.5", "2026-11-26T10:00:00Z"] == lines[1].split()[:8]
    assert ["updates", "--", "?", "?", "0", "0", "--", "--"] == lines[2].split()[:8]
    assert "Every 600 s; archive: s3://bucket/peloton" == lines[3]
    assert "jobs" == json.loads(run("--json admin retention").stdout)["classes"][0]["name"]
