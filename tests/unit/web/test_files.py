"""Conversion of users' files for pages, with the command line's reader."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from google.protobuf.json_format import MessageToDict
from starlette.testclient import TestClient

from peloton.api import convert_v1_spec
from peloton.api.config_schema import FILES
from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.yaml_config import load_message
from services.web import files
from services.web.app import WebSettings, create_app
from tests.unit.cli.test_examples import DATABASES, POOLS, ROOT, SERVICES

EXAMPLES = {"pool": [*POOLS], "service": [*SERVICES, *DATABASES], "job": ["examples/tutorial/hello.yaml"]}


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(create_app(WebSettings("127.0.0.1:1")), base_url="http://127.0.0.1:5398") as found:
        found.headers["content-type"] = files.YAML
        yield found


@pytest.mark.parametrize(("name", "path"), [(name, path) for name, paths in EXAMPLES.items() for path in paths])
def test_a_file_becomes_what_a_call_takes(client: TestClient, name: str, path: str) -> None:
    """The page receives the message that the command line would send."""
    response = client.post(f"/files/{name}", content=(ROOT / path).read_bytes())

    wanted = MessageToDict(load_message(ROOT / path, FILES[name].message))
    assert (200, {"message": wanted}) == (response.status_code, response.json())


@pytest.mark.parametrize(("name", "path"), [(name, path) for name, paths in EXAMPLES.items() for path in paths])
def test_a_message_becomes_a_file(client: TestClient, name: str, path: str) -> None:
    """The file loads as the same message."""
    message = load_message(ROOT / path, FILES[name].message)

    response = client.post(f"/files/{name}", json=MessageToDict(message), headers={"content-type": files.JSON})

    assert message == load_message(response.json()["text"], FILES[name].message)


@pytest.mark.parametrize("path", [*SERVICES, *DATABASES])
def test_a_service_becomes_a_file_that_can_be_edited(client: TestClient, path: str) -> None:
    """The file is as it was written: the API returns commands and images in two forms, and the other one would
    override an edit."""
    spec = load_message(ROOT / path, stateless_pb2.JobSpec)
    reported = convert_v1_spec.job_spec(convert_v1_spec.job_config(spec), spec.SerializeToString())

    response = client.post("/files/service", json=MessageToDict(reported), headers={"content-type": files.JSON})

    assert reported != spec
    assert spec == load_message(response.json()["text"], stateless_pb2.JobSpec)


def test_what_only_mesos_can_say_is_kept(client: TestClient) -> None:
    """A user, which v1alpha's entrypoints do not have, is kept in the file."""
    spec = stateless_pb2.JobSpec()
    spec.default_spec.containers.add().command.MergeFrom(mesos_pb2.CommandInfo(value="ls", user="maps"))
    reported = convert_v1_spec.job_spec(convert_v1_spec.job_config(spec), spec.SerializeToString())

    response = client.post("/files/service", json=MessageToDict(reported), headers={"content-type": files.JSON})

    found = load_message(response.json()["text"], stateless_pb2.JobSpec)
    assert "maps" == found.default_spec.containers[0].command.user
    assert convert_v1_spec.job_config(spec) == convert_v1_spec.job_config(found)


def test_what_is_no_message_becomes_no_file(client: TestClient) -> None:
    """The error names the type of the message."""
    response = client.post("/files/job", content='{"bogus": 1}', headers={"content-type": files.JSON})

    assert (400, "invalid_argument") == (response.status_code, response.json()["code"])
    assert "JobConfig" in response.json()["message"]


def test_what_is_wrong_has_its_place(client: TestClient) -> None:
    """The error has line and column, and the text of the command line."""
    response = client.post("/files/job", content="name: oops\ninstancecont: 3\n")

    reported = "unknown key 'instancecont' (did you mean 'instancecount'?)"
    assert 400 == response.status_code
    assert {"code": "invalid_argument", "message": reported, "line": 2, "column": 1} == response.json()


def test_another_content_type_is_refused(client: TestClient) -> None:
    """Other content types are refused, so that a form of another site cannot send YAML."""
    assert 415 == client.post("/files/job", content="name: a", headers={"content-type": "text/plain"}).status_code


def test_files_are_bounded(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a file, its values with aliases, and the number of concurrent conversions have bounds."""
    aliases = "a: &a [x, x, x, x, x, x, x, x]\nb: &b [*a, *a]\n"
    many = "ldapgroups: &g [x, x, x]\ninstanceconfig: {0: &i {name: a, labels: [{key: k}]}, 1: *i, 2: *i}\n"

    assert 413 == client.post("/files/job", content=b" " * (files.FILE_BYTES_MAX + 1)).status_code
    assert 400 == client.post("/files/job", content=aliases).status_code
    assert 200 == client.post("/files/job", content=many).status_code
    monkeypatch.setattr(files, "VALUES_MAX", 8)
    assert "more than 8 values" == client.post("/files/job", content=many).json()["message"]
    monkeypatch.setattr(files, "FILES_MAX", 0)
    assert 429 == client.post("/files/job", content=many).status_code
