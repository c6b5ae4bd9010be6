"""A process that archives and deletes is killed with kill -9 again and again: nothing is lost."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa

from peloton.errors import NotFound
from peloton.lifecycle.retention import DAY_NS
from services.retention.archive import LINES, Archive
from services.retention.stores import FolderStore
from services.storage.storage import Storage
from services.storage.tables import JOB, POD, POD_EVENT, PRUNED_JOB
from tests.conformance.storage.builders import NOW, postgres_nightly
from tests.conformance.storage.test_retention import an_ended_job, faults_of, lines_in
from tests.waiting import timeout_s

JOBS, KILLS = 20, 4
PROGRAM = """
import asyncio, sys
from peloton.lifecycle import retention as rules
from services.retention import runner
from services.retention.archive import Archive
from services.retention.stores import FolderStore
from services.settings import Settings
from services.retention.composition import policy_of
from services.storage.storage import Storage

url, folder, now_ns = sys.argv[1], sys.argv[2], int(sys.argv[3])
runner.ROWS_MIN = rules.ROWS_MIN = 2
runner.next_size = lambda rows, took_s: 2
from pathlib import Path
storage = Storage(url, lambda: now_ns)
retention = runner.Retention(storage, policy_of(Settings()), Archive(FolderStore(Path(folder))), lambda: now_ns)
print("begins", flush=True)
asyncio.run(retention.once())
print("done", flush=True)
"""


@postgres_nightly
def test_kill_9(url: str, open_storage: Callable[[], Storage], tmp_path: Path) -> None:
    """All jobs are in the archive and gone from the database in the end, and at no moment was a job in neither."""
    storage, archive, draw = open_storage(), tmp_path / "archive", random.Random(1)
    jobs = {an_ended_job(storage, 1 + number % 3) for number in range(JOBS)}
    events = len(_ids(storage, POD_EVENT.c.job_id))
    kills, deadline_s = 0, time.monotonic() + timeout_s()
    while True:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, url, str(archive), str(NOW + 31 * DAY_NS)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        with process.stdout:
            assert b"begins\n" == process.stdout.readline()
            if kills < KILLS:
                time.sleep(draw.uniform(0, 0.15))
                process.send_signal(signal.SIGKILL)
            is_done = process.stdout.read().endswith(b"done\n")
        process.wait()
        left = set(_ids(storage, JOB.c.job_id))
        kept = {line["job_id"] for line in lines_in(archive, "jobs") if line["kind"] == "job"}
        assert jobs == left | kept
        if is_done:
            break
        kills += 1
        assert time.monotonic() < deadline_s, f"{len(left)} jobs are left after {kills} kills"

    assert [] == _ids(storage, JOB.c.job_id) == _ids(storage, POD.c.job_id) == _ids(storage, POD_EVENT.c.job_id)
    assert jobs == set(_ids(storage, PRUNED_JOB.c.job_id)) == kept
    unique = {(line["job_id"], line["instance_id"], line["revision"]) for line in lines_in(archive, "pod-events")}
    assert events == len(unique)
    found = Archive(FolderStore(archive))
    assert [""] * len(list(archive.rglob(f"*{LINES}"))) == [_fault_of(found, name) for name in found.list_objects()]
    assert [] == faults_of(storage)
    shutil.rmtree(archive)


def _ids(storage: Storage, column: sa.ColumnElement[str]) -> list[str]:
    return storage.db.read(lambda conn: list(conn.execute(sa.select(column)).scalars()))


def _fault_of(archive: Archive, name: str) -> str:
    try:
        return archive.find_fault(name)
    except NotFound as error:
        return str(error)
