"""docs/http-api.md: its calls by curl, one after the other, on the whole system."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from peloton.api.v0.peloton_pb2 import ResourcePoolID
from peloton.api.v0.respool.respool_pb2 import GetRequest
from tests.e2e.shared import THREE_HOSTS, Lend
from tests.present import require

PAGE = (Path(__file__).parents[2] / "docs" / "http-api.md").read_text(encoding="utf-8")
JOB = "91b1b8e5-2ba8-41e7-bc23-0242ac11000e"
STOPPED_BY_CURL = 28

pytestmark = [
    pytest.mark.xdist_group("batch"),
    pytest.mark.skipif(shutil.which("curl") is None, reason="the page's examples are calls of curl"),
]


def calls() -> dict[str, str]:
    """Each call of the page by the last two parts of its address."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    texts = [
        text
        for block in blocks
        for text in re.split(r"^(?=curl |pool=)", block, flags=re.MULTILINE)
        if "curl -s" in text
    ]
    return {require(re.search(r"\$api/\S*?(\w+/\w+|openapi\.json)\s", text))[1]: text for text in texts}


def test_the_page_of_the_http_api_does_what_it_says(lend: Lend) -> None:
    """A pool, a job, its states, errors, streams in both directions and the document."""
    page = calls()
    with lend(THREE_HOSTS) as cluster:
        pool = ""

        def call_method(name: str, code: int = 0, more: str = "") -> str:
            script = f"api={cluster.local.web_url}/api pool={pool}\n{page[name]}{more}"
            done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False)
            assert code == done.returncode, done.stderr
            return done.stdout

        def answer(name: str) -> Any:
            return json.loads(call_method(name))

        def has_run() -> bool:
            return bool(answer("JobManager/Get")["jobInfo"]["runtime"]["state"] == "SUCCEEDED")

        pool = call_method("ResourceManager/CreateResourcePool", more='echo "$pool"').strip()
        assert (
            "curl"
            == cluster.client.respools.GetResourcePool(GetRequest(id=ResourcePoolID(value=pool))).poolinfo.config.name
        )
        assert {"jobId": {"value": JOB}} == answer("JobManager/Create")
        cluster.wait(has_run, "the job's end")
        assert "alreadyExists" in answer("JobManager/Create")["error"]
        assert "not_found" == answer("JobService/GetJob")["code"]
        pieces = answer("BulkService/CreateJob")["jobId"]["value"]
        assert "SUCCEEDED" == cluster.finish(pieces)
        listed = [json.loads(line)["result"]["jobs"] for line in call_method("JobService/ListJobs").splitlines()]
        assert {"hello", "pieces"} <= {job["name"] for jobs in listed for job in jobs}
        first = json.loads(call_method("WatchService/Watch", STOPPED_BY_CURL).splitlines()[0])
        assert first["result"]["watchId"]
        assert "/api/peloton.api.job.JobManager/Create" in answer("openapi.json")["paths"]
