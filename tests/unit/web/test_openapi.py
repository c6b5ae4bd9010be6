"""The OpenAPI document is valid, complete, and consistent with the gateway."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from google.protobuf import json_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from peloton.api.service_names import SPELLINGS
from services.web import openapi
from services.web.gateway import methods
from services.web.proto_json import read_message
from tests.nightly import examples
from tests.unit.web.conftest import World
from tests.unit.web.messages import messages

pytestmark = pytest.mark.slow

METHODS = methods()
KINDS = {kind.DESCRIPTOR.full_name: kind for method in METHODS.values() for kind in (method.request, method.answer)}
DOCUMENT = openapi.document()


def schema_of(name: str) -> Validator:
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]})


def test_the_document_is_valid() -> None:
    """The document is valid OpenAPI 3.1, with every reference resolved."""
    assert [] == [error.message for error in OpenAPIV31SpecValidator(DOCUMENT).iter_errors()]


def test_every_method_is_in_the_document() -> None:
    """A method is under the first name of its service, whose description has the other names."""
    first = {names[0] for names in SPELLINGS}
    about = {tag["name"]: tag["description"] for tag in DOCUMENT["tags"]}

    assert {f"/api/{path}" for path in METHODS if path.partition("/")[0] in first} == set(DOCUMENT["paths"])
    assert [] == [name for names in SPELLINGS for name in names[1:] if name not in about[names[0]]]


def test_streams_are_lines() -> None:
    """The document says which bodies have one message per line."""
    bodies, answers = set(), set()
    for path, item in DOCUMENT["paths"].items():
        if "application/x-ndjson" in item["post"]["requestBody"]["content"]:
            bodies.add(path.removeprefix("/api/"))
        if "application/x-ndjson" in item["post"]["responses"]["200"]["content"]:
            answers.add(path.removeprefix("/api/"))

    assert {path for path, method in METHODS.items() if method.takes_stream} == bodies
    assert {path for path, method in METHODS.items() if method.gives_stream} == answers


@given(data=st.data(), name=st.sampled_from(sorted(KINDS)))
@settings(max_examples=examples(300), deadline=None, suppress_health_check=list(HealthCheck))
def test_messages_are_as_the_document_says(data: st.DataObject, name: str) -> None:
    """Any message, written as JSON, fits its schema."""
    message = data.draw(messages(KINDS[name].DESCRIPTOR))

    assert [] == [error.message for error in schema_of(name).iter_errors(json_format.MessageToDict(message))]


@pytest.mark.parametrize(
    "body",
    [
        {"id": {"value": 7}},
        {"id": "7"},
        {"config": {"instanceCount": -1}},
        {"config": {"type": "BATHC"}},
        {"config": {"labels": {}}},
        {"config": {"sla": {"preemptible": "yes"}}},
    ],
    ids=str,
)
def test_what_the_gateway_refuses_does_not_fit(body: dict[str, Any]) -> None:
    """The schema and the gateway refuse the same bodies."""
    name = "peloton.api.v0.job.CreateRequest"

    with pytest.raises(Exception, match="the body is no CreateRequest"):
        read_message(KINDS[name], orjson.dumps(body))
    assert [] != list(schema_of(name).iter_errors(body))


def test_fields_have_the_comments_of_the_protos() -> None:
    """Fields have the comments of the .proto files, and deprecated ones are marked."""
    schemas = DOCUMENT["components"]["schemas"]

    assert schemas["peloton.api.v0.job.JobConfig"]["description"] == "What the owner asks for."
    fields = schemas["peloton.api.v0.job.RuntimeInfo"]["properties"]
    assert fields["taskStats"]["description"] == "Instances by name of their state."
    assert fields["configVersion"]["deprecated"]


def test_the_document_is_served(world: World) -> None:
    """The document is at /api/openapi.json."""
    response = world.run(world.client.get("/api/openapi.json"))

    assert (200, "application/json") == (response.status_code, response.headers["content-type"])
    assert DOCUMENT == response.json()
