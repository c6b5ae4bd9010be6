"""Refusals of the original's private calls."""

from __future__ import annotations

import re
from typing import Any

import click
import grpc
import grpc.aio
import pytest

from cli.main import peloton
from peloton.api.service_names import INTERNAL_HOST_SERVICE, list_methods
from services.api.private_calls import DAEMONS, REFUSED
from tests.unit.api_service.story import expect_refusal

CALLS = [(service, name) for service, methods in REFUSED.items() for name in methods]
TEXTS = sorted({text for methods in REFUSED.values() for text in methods.values()})


@pytest.mark.parametrize(("service", "name"), [*CALLS, (CALLS[0][0], "Unheard")])
async def test_private_calls_are_refused_by_name(channel: grpc.aio.Channel, service: str, name: str) -> None:
    """The answer names the call, and what serves its purpose here, whatever the request is."""
    raw: Any = channel
    why = REFUSED[service].get(name, DAEMONS)

    assert (grpc.StatusCode.UNIMPLEMENTED, f"{name} of {service} is not served: {why}") == await expect_refusal(
        raw.unary_unary(f"/{service}/{name}")(b"\xff\xff")
    )


def test_served_calls_are_not_refused() -> None:
    """The one private call that is served is not in the table."""
    served = {path.rpartition("/")[2] for path, _ in list_methods() if path.startswith(INTERNAL_HOST_SERVICE[0])}
    assert {"DisableKillTasks"} == served
    assert not served & set(REFUSED[INTERNAL_HOST_SERVICE[0]])


@pytest.mark.parametrize("text", TEXTS)
def test_refusals_name_what_exists(text: str) -> None:
    """Commands and methods in the texts exist."""
    for line in re.findall(r"`peloton ([a-z -]+?)(?: [A-Z-].*?| -s .*?)?`", text):
        command: click.Command = peloton
        for word in line.split():
            assert isinstance(command, click.Group), line
            found = command.get_command(click.Context(command), word)
            assert found is not None, line
            command = found
    named = {(service.rpartition(".")[2], name) for service, name in (path.split("/") for path, _ in list_methods())}
    for name, service in re.findall(r"(\w+) of (\w+(?:Service|Manager))\b", text):
        assert (service, name) in named


def test_texts_name_commands() -> None:
    """The pattern of the test above finds commands at all."""
    assert len(re.findall(r"`peloton ", "".join(TEXTS))) > 10
