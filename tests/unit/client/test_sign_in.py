"""Sign-in of people at an issuer, and the renewal of their tokens."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import pytest

from peloton.api.v0.access import access_pb2 as pb
from peloton.client import AsyncClient
from peloton.client.credentials import TokenFile
from peloton.client.sign_in import (
    DeviceCode,
    delete_sign_in,
    renew,
    sign_in_by_browser,
    sign_in_by_device,
    store_sign_in,
)
from peloton.client.token_files import credentials_file, read_sign_in, sign_in_file, store_token, write_sign_in
from peloton.errors import InvalidArgument, Unauthenticated, Unavailable
from peloton.issuer import Issuer, Refused, Tokens, claims_of, discover
from tests.doubles.renewal import renew_together
from tests.issuer import DEVICE_GRANT, StandIn, browse, serve_issuer
from tests.present import require
from tests.unit.cli.fake_api import FakeApi

ADDRESS = "api.example.org:5397"


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with serve_issuer() as found:
        yield found


@pytest.fixture
def issuer(stand_in: StandIn) -> Issuer:
    return discover(stand_in.address)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


class Clock:
    """A clock that sleeping moves on."""

    def __init__(self) -> None:
        self.now_s, self.pauses = 0.0, list[float]()

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.pauses.append(seconds)

    def read(self) -> float:
        return self.now_s


def by_device(issuer: Issuer, stand_in: StandIn, clock: Clock, user: str = "ann@x.org") -> Tokens:
    """Sign in; the user types the code at once, or never."""

    def show(code: DeviceCode) -> None:
        assert code.complete_address == f"{code.address}?user_code={code.user_code}"
        if user:
            stand_in.approve(user, code.user_code)

    return sign_in_by_device(issuer, "peloton", show, clock.sleep, clock.read)


def test_a_person_signs_in_by_a_code(issuer: Issuer, stand_in: StandIn) -> None:
    """Polls go on while the code is not typed, and slow down where the issuer wants it."""
    stand_in.refusals = ["authorization_pending", "slow_down", "authorization_pending"]
    clock = Clock()
    tokens = by_device(issuer, stand_in, clock)
    assert "ann@x.org" == claims_of(tokens.id_token)["email"]
    assert [1, 1, 6, 6] == clock.pauses
    asked = next(iter(stand_in.codes.values()))
    assert "openid email groups offline_access" == asked["scope"]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("access_denied", "the sign-in at ISSUER was denied"),
        ("expired_token", "has expired: the sign-in takes at most 60 s"),
        ("invalid_client", "the issuer ISSUER refuses: invalid_client"),
    ],
)
def test_a_refused_sign_in_names_the_reason(issuer: Issuer, stand_in: StandIn, error: str, text: str) -> None:
    """The issuer is named, too."""
    stand_in.refusals = [error]
    with pytest.raises(Unauthenticated) as refused:
        by_device(issuer, stand_in, Clock())
    assert text.replace("ISSUER", stand_in.address) in refused.value.message


def test_a_code_that_is_not_typed_expires(issuer: Issuer, stand_in: StandIn) -> None:
    """The number of polls is bounded by the life of the code."""
    clock = Clock()
    with pytest.raises(Unauthenticated, match="has expired"):
        by_device(issuer, stand_in, clock, user="")
    assert (59, 59) == (stand_in.grants[DEVICE_GRANT], len(clock.pauses))


def test_a_person_signs_in_by_a_browser_here(issuer: Issuer, stand_in: StandIn) -> None:
    """Answers of another sign-in and other addresses are refused, and end nothing."""
    statuses = []

    def open_page(address: str) -> None:
        callback = parse_qs(urlsplit(address).query)["redirect_uri"][0]

        def follow() -> None:
            for target in ("/favicon.ico", "/callback?code=x&state=other", "/callback?error=access_denied"):
                try:
                    urlopen(callback.replace("/callback", target), timeout=10)
                except HTTPError as error:
                    statuses.append(error.code)
                    error.close()
            browse(address).join()

        threading.Thread(target=follow, daemon=True).start()

    tokens = sign_in_by_browser(issuer, "peloton", open_page, timeout_s=20)
    assert "ann@x.org" == claims_of(tokens.id_token)["email"]
    assert [404, 400, 400] == statuses


def test_a_browser_that_denies_or_stays_away_is_an_error(issuer: Issuer) -> None:
    """The command ends either way."""
    with pytest.raises(Refused, match="was denied: access_denied"):
        sign_in_by_browser(issuer, "peloton", lambda address: browse(address, "").join(0), timeout_s=20)
    with pytest.raises(Unauthenticated, match=r"has not come back from .* within 0 s"):
        sign_in_by_browser(issuer, "peloton", lambda address: None, timeout_s=0.1)


def test_an_issuer_that_is_away_or_another_one_is_named(stand_in: StandIn) -> None:
    """Plain text beyond loopback is refused, and so is a document of another issuer."""
    with pytest.raises(Unavailable, match=r"the issuer http://127.0.0.1:1 does not answer"):
        discover("http://127.0.0.1:1")
    with pytest.raises(Unavailable, match="want https://"):
        discover("http://issuer.example")
    with pytest.raises(Unavailable, match="calls itself"):
        discover(f"{stand_in.address}/")


def store(issuer: Issuer, stand_in: StandIn) -> Path:
    return store_sign_in(ADDRESS, issuer, "peloton", by_device(issuer, stand_in, Clock()))


def make_due(path: Path, expires_s: float = 0.0) -> None:
    write_sign_in(path, replace(require(read_sign_in(path)), renew_at_s=0.0, expires_s=expires_s))


def test_the_files_of_a_sign_in_are_private_and_of_one_cluster(issuer: Issuer, stand_in: StandIn) -> None:
    """The refresh token is in no representation."""
    path = store(issuer, stand_in)
    assert [0o600, 0o600] == [stat.S_IMODE(one.stat().st_mode) for one in (path, sign_in_file(path))]
    kept = require(read_sign_in(path))
    assert (stand_in.address, "peloton") == (kept.issuer, kept.client_id)
    assert 470 < kept.renew_at_s - time.time() < 480  # the last fifth of 600 s
    assert kept.refresh_token not in repr(kept)
    assert not sign_in_file(credentials_file("other.example.org:5397")).exists()


def test_a_token_is_renewed_when_it_is_due(issuer: Issuer, stand_in: StandIn) -> None:
    """A token that is not due is sent without a word to the issuer."""
    path = store(issuer, stand_in)
    headers = TokenFile(path)
    first = headers()
    assert (first, False) == (headers(), headers.is_due())
    make_due(path)
    headers = TokenFile(path)
    second = headers()
    assert (True, False) == (second != first, headers.is_due())
    assert 1 == stand_in.grants["refresh_token"]


def test_one_of_many_processes_renews_a_token(issuer: Issuer, stand_in: StandIn) -> None:
    """Issuers end a session whose refresh token comes twice."""
    path = store(issuer, stand_in)
    make_due(path)
    spawning = multiprocessing.get_context("spawn")
    barrier = spawning.Barrier(3)
    processes = [spawning.Process(target=renew_together, args=(path, barrier)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert ([0, 0, 0], 1) == ([process.exitcode for process in processes], stand_in.grants["refresh_token"])


def test_a_valid_token_outlives_a_failed_renewal(issuer: Issuer, stand_in: StandIn) -> None:
    """The issuer is asked again after a pause, and an expired token is an error that says what to do."""
    path = store(issuer, stand_in)
    make_due(path, expires_s=time.time() + 60)
    stand_in.renews = False
    headers = TokenFile(path)
    assert headers() == headers()
    assert (1, False) == (stand_in.grants["refresh_token"], headers.is_due())
    make_due(path)
    with pytest.raises(Unauthenticated, match=r"the session has ended.*sign in again by peloton login"):
        TokenFile(path)()


def test_an_expired_token_needs_its_issuer(issuer: Issuer, stand_in: StandIn) -> None:
    """The error names the issuer that is away."""
    path = store(issuer, stand_in)
    write_sign_in(
        path, replace(require(read_sign_in(path)), renew_at_s=0.0, expires_s=0.0, issuer="http://127.0.0.1:1")
    )
    with pytest.raises(Unavailable, match=r"the issuer http://127.0.0.1:1 does not answer"):
        TokenFile(path)()


def test_a_renewal_that_dies_between_its_files_is_repeated(
    issuer: Issuer, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old token is renewed by the new refresh token: it would be sent until the new one is due."""
    path = store(issuer, stand_in)
    make_due(path, expires_s=time.time() + 60)
    old = path.read_bytes()

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("peloton.client.sign_in.write_token", die)
        with pytest.raises(KeyboardInterrupt):
            renew(path)
    assert old == path.read_bytes()

    headers = TokenFile(path)
    renewed = headers()
    assert (2, False) == (stand_in.grants["refresh_token"], headers.is_due())
    assert renewed[0][1] != f"Bearer {old.decode().strip()}"


def test_a_valid_token_outlives_a_folder_that_is_read_only(issuer: Issuer, stand_in: StandIn) -> None:
    """A mounted folder cannot be written: the token serves until it expires, and then an error names the file."""
    path = store(issuer, stand_in)
    make_due(path, expires_s=time.time() + 60)
    lock = path.with_suffix(".lock")
    lock.unlink()
    lock.mkdir()  # cannot be opened, also not by root
    assert TokenFile(path)()
    make_due(path)
    with pytest.raises(Unavailable, match=rf"token file {path} cannot be renewed: Is a directory"):
        TokenFile(path)()


def test_a_token_of_another_kind_replaces_a_sign_in(issuer: Issuer, stand_in: StandIn) -> None:
    """No renewal replaces it."""
    path = store(issuer, stand_in)
    store_token(ADDRESS, "ptk_ab_cd")
    assert (None, "Bearer ptk_ab_cd") == (read_sign_in(path), TokenFile(path)()[0][1])


def test_a_damaged_sign_in_says_so(issuer: Issuer, stand_in: StandIn) -> None:
    """The error says what to do."""
    path = store(issuer, stand_in)
    for content in ("{", "[]", json.dumps({"issuer": "x"})):
        sign_in_file(path).write_text(content)
        with pytest.raises(InvalidArgument, match="is damaged: peloton login writes it again"):
            read_sign_in(path)


def test_the_end_of_a_sign_in_is_that_at_the_issuer_too(issuer: Issuer, stand_in: StandIn) -> None:
    """The files are deleted, and the refresh token is revoked."""
    path = store(issuer, stand_in)
    assert 1 == len(stand_in.renewing)
    assert ([sign_in_file(path), path], "") == delete_sign_in(path)
    assert ({}, False, False) == (stand_in.renewing, path.exists(), sign_in_file(path).exists())
    with pytest.raises(FileNotFoundError):
        delete_sign_in(path)


def test_a_sign_in_without_its_token_is_ended(issuer: Issuer, stand_in: StandIn) -> None:
    """The file that renews the token is enough to end the sign-in."""
    path = store(issuer, stand_in)
    path.unlink()
    assert ([sign_in_file(path)], "") == delete_sign_in(path)
    assert {} == stand_in.renewing


def test_a_damaged_sign_in_cannot_be_ended(issuer: Issuer, stand_in: StandIn) -> None:
    """The files are deleted, and the fault says that the sign-in lasts."""
    path = store(issuer, stand_in)
    sign_in_file(path).write_text("{")
    deleted, fault = delete_sign_in(path)
    assert ([sign_in_file(path), path], 1) == (deleted, len(stand_in.renewing))
    assert "is damaged" in fault
    assert fault.endswith("it lasts until the issuer ends it")


async def test_the_event_loop_runs_while_a_token_is_renewed(issuer: Issuer, stand_in: StandIn) -> None:
    """The call has the renewed token."""
    path = await asyncio.to_thread(store, issuer, stand_in)
    make_due(path)
    api = FakeApi()
    api.answers["access.WhoAmI"] = [pb.WhoAmIResponse(name="ann")]
    try:
        async with AsyncClient(api.address, token_file=str(path)) as client:
            assert "ann" == (await client.access.WhoAmI(pb.WhoAmIRequest())).name
    finally:
        api.stop()
    assert f"Bearer {path.read_text().strip()}" == api.calls[-1].headers["authorization"]
    assert 1 == stand_in.grants["refresh_token"]
