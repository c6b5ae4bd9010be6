"""``peloton login``, ``whoami``, ``can-i`` and ``admin token``: requests, files, printed texts and exit codes."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from peloton.access.tokens import parse_rows
from peloton.api.v0.access import access_pb2 as pb
from peloton.client.token_files import credentials_file, store_token
from tests.issuer import StandIn, browse, serve_issuer
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_api import FakeApi

ALICE = pb.WhoAmIResponse(
    name="alice", kind="user", groups=["maps"], issuer="tokens file", token_id="ab", is_enforced=True,
    grants=[pb.Grant(role="submitter", pool="/eng/maps")],
    quotas=[pb.Quota(name="active_pods", limit=2000, rule="group:maps")],
)  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep configurations in a folder of the test."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def test_a_stored_token_is_sent_until_it_is_deleted(run: Run, api: FakeApi, folder: Path) -> None:
    """The file is readable by the user alone, and no output has the token."""
    api.answers["access.WhoAmI"] = [ALICE]
    (folder / "secret").write_text("ptk_ab_cd\n")
    said = run(f"login --token-file {folder / 'secret'}")
    assert said.stdout.startswith("user alice at ")
    path = credentials_file(api.address)
    assert ("ptk_ab_cd\n", 0o600) == (path.read_text(), stat.S_IMODE(path.stat().st_mode))
    run("whoami")
    assert ["Bearer ptk_ab_cd"] * 2 == [call.headers["authorization"] for call in api.calls]
    assert "ptk_ab_cd" not in said.stdout + said.stderr
    run("logout")
    run("whoami")
    assert "authorization" not in api.calls[-1].headers
    assert "no token is stored" in run("logout").stderr


@pytest.fixture
def stand_in(api: FakeApi) -> Iterator[StandIn]:
    """An issuer of the API, at which Ann types each code at once."""
    with serve_issuer(approves="ann@x.org", interval_s=0.01) as found:
        place = pb.SignInPlace(issuer=found.address, client_id="peloton")
        ann = pb.WhoAmIResponse(name="ann@x.org", kind="user", is_enforced=True, expires_at="2027-01-01T00:00:00+00:00")
        api.answers["access.WhoAmI"] = [pb.WhoAmIResponse(is_enforced=True, sign_in=place), ann]
        yield found


def test_a_code_leads_to_a_token_that_is_renewed(run: Run, api: FakeApi, stand_in: StandIn) -> None:
    """No stored token is sent to find the issuer, and no secret is printed."""
    store_token(api.address, "old")
    said = run("login")
    token = credentials_file(api.address).read_text().strip()
    assert ["", f"Bearer {token}"] == [call.headers.get("authorization", "") for call in api.calls]
    assert f"Open {stand_in.address}/device and type the code " in said.stderr
    assert f"user ann@x.org at {api.address}; the token is in " in said.stdout
    assert "expires: 2027-01-01T00:00:00+00:00, and is renewed before that\n" in said.stdout
    assert token not in said.stdout + said.stderr
    assert "and is renewed before that" in run("whoami").stdout
    assert "has not been ended" not in run("logout").stderr
    assert {} == stand_in.renewing


def test_a_browser_here_leads_to_a_token(
    run: Run, api: FakeApi, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An issuer without codes is asked this way, too, and one without renewal is said to have none."""
    monkeypatch.setattr("webbrowser.open", browse)
    stand_in.offers_device, stand_in.renews = False, False
    said = run("login")
    assert "user ann@x.org at" in said.stdout, said.output
    assert "lets no token be renewed" in said.stderr
    assert ", and is renewed" not in said.stdout


def test_a_sign_in_that_fails_stores_nothing(run: Run, api: FakeApi, stand_in: StandIn) -> None:
    """A denial, a token for another cluster, and an issuer that is away each say so."""
    stand_in.refusals = ["access_denied"]
    place, answer = api.answers["access.WhoAmI"][0], "the JWT is for another audience than peloton"
    assert "was denied" in run("login").stderr
    api.answers["access.WhoAmI"] = [place, (grpc.StatusCode.UNAUTHENTICATED, answer)]
    assert answer in run("login").stderr
    away = pb.SignInPlace(issuer="http://127.0.0.1:1", client_id="peloton")
    api.answers["access.WhoAmI"] = [pb.WhoAmIResponse(sign_in=away)]
    assert "the issuer http://127.0.0.1:1 does not answer" in run("login").stderr
    assert not credentials_file(api.address).exists()


def test_a_cluster_without_issuer_asks_for_a_token(run: Run, api: FakeApi) -> None:
    """Options of a sign-in at an issuer are refused there."""
    api.answers["access.WhoAmI"] = [pb.WhoAmIResponse(is_enforced=True), ALICE]
    assert "has no OIDC issuer: want a token" in run("login --browser").stderr
    api.answers["access.WhoAmI"] = [pb.WhoAmIResponse(is_enforced=True), ALICE]
    assert "user alice at" in run("login", text="ptk_ab_cd\n").stdout


def test_a_refused_token_is_not_stored(run: Run, api: FakeApi, folder: Path) -> None:
    """The refusal of the API is shown."""
    api.answers["access.WhoAmI"] = [(grpc.StatusCode.UNAUTHENTICATED, "the token is unknown")]
    (folder / "secret").write_text("ptk_ab_cd\n")
    assert "the token is unknown" in run(f"login --token-file {folder / 'secret'}").stderr
    assert not credentials_file(api.address).exists()


@pytest.mark.parametrize(
    ("content", "text"),
    [("", "want one token"), ("two words", "want one token"), ("x" * 20_000, "has more than")],
    ids=["empty", "two words", "large"],
)
def test_a_file_without_a_token_is_refused(run: Run, folder: Path, content: str, text: str) -> None:
    """The error names the rule."""
    (folder / "secret").write_text(content)
    assert text in run(f"login --token-file {folder / 'secret'}").stderr


def test_identity_and_roles_are_shown(run: Run, api: FakeApi) -> None:
    """A cluster without credentials says so."""
    api.answers["access.WhoAmI"] = [ALICE, pb.WhoAmIResponse(name="anonymous", kind="anonymous")]
    shown = "user alice\ngroups: maps\nissuer: tokens file\ntoken: ab\nrole submitter on /eng/maps\n"
    assert shown + "quota: 2,000 active pods; the rule is group:maps\n" == run("whoami").stdout
    assert "everyone may do everything" in run("whoami").stdout


def test_the_answer_of_can_i_is_the_exit_code(run: Run, api: FakeApi) -> None:
    """The reason is printed in both cases."""
    api.answers["access.CanI"] = [pb.CanIResponse(is_allowed=True, reason="r"), pb.CanIResponse(reason="q")]
    assert "yes: r\n" == run("can-i JobManager/Create --pool /eng").stdout
    assert ("JobManager/Create", "/eng") == (api.calls[-1].request.method, api.calls[-1].request.pool)
    refused = run("can-i admin")
    assert ("no: q\n", 1) == (refused.stdout, refused.exit_code), refused.output


def test_tokens_are_made_listed_and_revoked(run: Run, folder: Path) -> None:
    """The token is printed once, and the file has its hash alone."""
    file = folder / "tokens"
    made = run(f"admin token create alice --group maps --expires-in 1h --file {file}").stdout.strip()
    run(f"admin token create bob --kind service --file {file}")
    rows = list(parse_rows(file.read_text()).values())
    assert [("alice", "user"), ("bob", "service")] == [(row.name, row.kind) for row in rows]
    assert made.split("_", 2)[2] not in file.read_text()
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    assert f"{rows[0].id}\n{rows[1].id}\n" == run(f"-o name admin token list --file {file}").stdout
    run(f"admin token revoke {rows[0].id} --file {file}")
    assert ["bob"] == [row.name for row in parse_rows(file.read_text()).values()]
    assert "has no token" in run(f"admin token revoke {rows[0].id} --file {file}").stderr


def test_a_bad_file_of_tokens_is_left_as_it_is(run: Run, folder: Path) -> None:
    """The error names the line."""
    file = folder / "tokens"
    file.write_text("{}\n")
    assert "line 1: want a text for" in run(f"admin token create bob --file {file}").stderr
    assert "{}\n" == file.read_text()
