"""Credentials and TLS to Mesos, as settings say."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.api.mesos_access import OPEN, TlsFiles, read_access
from peloton.errors import InvalidArgument
from services.hostmgr.mesos.agent_watch import AgentWatch
from services.hostmgr.mesos.agents import AgentPoller
from services.hostmgr.mesos.master_term import MasterTerm
from services.hostmgr.mesos.operator import Denied
from services.role_settings import read_mesos_access
from services.settings import load
from tests.unit.hostmgr.mesos.sockets import TIMEOUT_S


def test_the_secret_is_in_a_file(tmp_path: Path) -> None:
    """The secret is the file without the end of its line; no text of Peloton shows it."""
    (tmp_path / "secret").write_text("open sesame\n")

    access = read_access("peloton", str(tmp_path / "secret"), False, TlsFiles())

    assert "Basic cGVsb3RvbjpvcGVuIHNlc2FtZQ==" == access.authorization
    assert "sesame" not in repr(access) + access.denial("m:1", "HTTP 401")


def test_without_settings_nothing_is_presented() -> None:
    """The connection is plain text, without a credential header."""
    assert OPEN == read_mesos_access(load({}))
    assert ("", "") == (OPEN.authorization, OPEN.header)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"PRINCIPAL": "p"}, "PELOTON_MESOS_PRINCIPAL and PELOTON_MESOS_SECRET_FILE go together"),
        ({"SECRET_FILE": "f"}, "PELOTON_MESOS_PRINCIPAL and PELOTON_MESOS_SECRET_FILE go together"),
        ({"PRINCIPAL": "a:b", "SECRET_FILE": "f"}, "PELOTON_MESOS_PRINCIPAL='a:b': no colon"),
        ({"PRINCIPAL": "p", "SECRET_FILE": "nowhere"}, "PELOTON_MESOS_SECRET_FILE=nowhere: cannot be read"),
        ({"PRINCIPAL": "p", "SECRET_FILE": "/dev/null"}, "PELOTON_MESOS_SECRET_FILE=/dev/null: the file is empty"),
        ({"TLS_CA_FILE": "f"}, "PELOTON_MESOS_TLS_CA_FILE has no effect without PELOTON_MESOS_TLS=true"),
        ({"TLS": "true", "TLS_KEY_FILE": "k"}, "PELOTON_MESOS_TLS_KEY_FILE has no effect without"),
        ({"TLS": "true", "TLS_CA_FILE": "nowhere"}, "PELOTON_MESOS_TLS_CA_FILE=nowhere: not a CA file"),
        ({"TLS": "true", "TLS_CERT_FILE": "/dev/null"}, "PELOTON_MESOS_TLS_CERT_FILE=/dev/null: not a certificate"),
    ],
)
def test_settings_that_cannot_be_meant_are_named(settings: dict[str, str], text: str) -> None:
    """Invalid settings are named at the start, before any call."""
    environment = {f"PELOTON_MESOS_{name}": value for name, value in settings.items()}

    with pytest.raises(InvalidArgument) as refused:
        read_mesos_access(load(environment))

    assert refused.value.message.startswith(text)


def test_a_url_is_no_master() -> None:
    """A URL cannot set https for masters found through ZooKeeper: a setting does."""
    with pytest.raises(InvalidArgument, match="want HOST:PORT or zk://HOSTS/PATH; for TLS set PELOTON_MESOS_TLS=true"):
        load({"PELOTON_MESOS": "https://m:5050"})


def test_who_may_not_list_agents_gives_up() -> None:
    """A principal that may not list agents has no capacity, and a retry would not help."""
    heard: list[str] = []
    done = threading.Event()

    def ask(master: str, body: Any) -> Iterator[bytes]:
        raise Denied(f"POST /api/v1 at {master}: HTTP 403 403 Forbidden.")

    def deny(why: str) -> None:
        heard.append(why)
        done.set()

    watch = AgentWatch(AgentPoller(10.0, ask), lambda hosts: None, lambda: "m:1", deny, MasterTerm(600.0))

    watch.start()

    assert done.wait(TIMEOUT_S)
    watch.stop()
    assert "POST /api/v1 at m:1: HTTP 403 403 Forbidden." == heard[0]
