"""Credentials of clients: their sources, their headers, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from peloton.client.credentials import Credentials, find_credentials
from peloton.client.token_files import credentials_file
from peloton.errors import InvalidArgument

A = "api:5397"


def test_the_environment_precedes_the_stored_token(tmp_path: Path) -> None:
    """PELOTON_TOKEN comes first, then PELOTON_TOKEN_FILE, then the file of the cluster."""
    base = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert Credentials() == find_credentials(A, base)
    path = credentials_file(A, base)
    path.parent.mkdir(parents=True)
    path.write_text("stored\n")
    assert Credentials(token_file=str(path)) == find_credentials(A, base)
    assert Credentials() == find_credentials("other:5397", base)
    assert Credentials(token_file="f") == find_credentials(A, base | {"PELOTON_TOKEN_FILE": "f"})
    both = base | {"PELOTON_TOKEN_FILE": "f", "PELOTON_TOKEN": "t"}
    assert Credentials(token="t") == find_credentials(A, both)


def test_each_kind_of_credentials_has_its_headers() -> None:
    """Tokens are bearers, and clients of the original send a user name and password."""
    assert (("authorization", "Bearer t"),) == Credentials(token="t").headers()()
    assert (("username", "u"), ("password", "p")) == Credentials(username="u", password="p").headers()()
    assert () == Credentials().headers()()


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    """A rotated token is sent by the next call."""
    path = tmp_path / "token"
    path.write_text("one\n")
    headers = Credentials(token_file=str(path)).headers()
    assert (("authorization", "Bearer one"),) == headers()
    (tmp_path / "new").write_text("two\n")
    os.replace(tmp_path / "new", path)
    assert (("authorization", "Bearer two"),) == headers()


def test_bad_credentials_are_refused(tmp_path: Path) -> None:
    """Errors and texts of credentials have no secret."""
    for given in ({"token": "a b"}, {"token": "x" * 20_000}, {"token": "t", "username": "u"}):
        with pytest.raises(InvalidArgument):
            Credentials(**given)
    for path in (tmp_path / "none", Path("/dev/zero")):
        with pytest.raises(InvalidArgument):
            Credentials(token_file=str(path)).headers()()
    assert "secret" not in repr(Credentials(username="u", password="secret"))
