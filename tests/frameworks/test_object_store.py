"""The archive in a store that speaks S3: moto's server stands in for it."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import peloton
from peloton.errors import NotFound, Unavailable
from peloton.lifecycle.retention import DAY_NS
from services.retention.archive import Archive
from services.retention.stores import open_store
from tests.frameworks.environments import environment
from tests.nightly import NIGHTLY
from tests.ports import free_ports
from tests.waiting import timeout_s

pytestmark = NIGHTLY
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
LOCATION = "s3://bucket/peloton"
LINES = [{"kind": "job", "job_id": f"{number:08d}", "job_name": "train", "message": "x" * 100} for number in range(9)]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    server = environment("moto").parent / "moto_server"
    with subprocess.Popen([server, "-H", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            began_s = time.monotonic()
            while not _create_bucket(url):
                assert time.monotonic() - began_s < timeout_s(), "the store does not answer"
                time.sleep(0.1)
            yield url
        finally:
            process.kill()


def _create_bucket(url: str) -> bool:
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT")):
            return True
    except OSError:
        return False


@pytest.fixture(autouse=True)
def _variables(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(name, value)


def test_objects_are_written_verified_and_queried(tmp_path: Path) -> None:
    """A repeated batch overwrites its object; the commands read what was written."""
    archive = Archive(open_store(LOCATION))
    first, again = (archive.write("jobs", 20_000 * DAY_NS, "0", LINES) for _ in range(2))
    assert first is not None
    assert first == again

    assert [first.name] == list(archive.list_objects("jobs"))
    assert "" == archive.find_fault(first.name)
    found = CliRunner().invoke(peloton, ["archive", "query", "--archive", LOCATION, "--job", "00000007", "--json"])
    assert "00000007" in found.output, found.output
    assert "00000006" not in found.output
    assert "1 objects are as" in CliRunner().invoke(peloton, ["archive", "verify", "--archive", LOCATION]).output
    with pytest.raises(NotFound, match="has no object"):
        archive.store.fetch("jobs/nothing", tmp_path / "nothing")


def test_a_store_that_refuses_or_is_away_keeps_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is one on which retention waits for its next round."""
    with pytest.raises(Unavailable, match="cannot be written"):
        Archive(open_store("s3://no-bucket/peloton")).write("jobs", DAY_NS, "0", LINES)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_ports(1)[0]}")
    with pytest.raises(Unavailable, match="cannot be written"):
        Archive(open_store(LOCATION)).write("jobs", DAY_NS, "0", LINES)
