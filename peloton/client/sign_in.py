"""Sign-in of a person at an OIDC issuer, by a code or by a browser on this machine, and renewal of its token."""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html import escape
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from peloton.client.token_files import (
    SignIn,
    check_token,
    credentials_file,
    read_sign_in,
    sign_in_file,
    write_sign_in,
    write_token,
)
from peloton.errors import PelotonError, Unauthenticated, Unavailable
from peloton.issuer import OFFLINE, SCOPES, Issuer, Refused, Tokens, check_address, claims_of, discover
from peloton.model.text import shorten

DEVICE_ENDPOINT, REVOCATION_ENDPOINT = "device_authorization_endpoint", "revocation_endpoint"
SIGN_IN_S_MAX = 900.0
"""Longest time in which a person signs in."""
POLL_S, POLL_S_MAX, SLOWER_S = 5.0, 60.0, 5.0
"""Pause between two polls where the issuer names none, its bound, and what ``slow_down`` adds (RFC 8628)."""
CONNECTION_S = 2.0
"""Time in which a connection to the callback has to send its request."""
EARLY_S, EARLY_SHARE = 300.0, 0.2
"""A token is renewed this long before it expires, or in the last fifth of its life if that is shorter."""
RENEWAL_S = 20.0
"""Longest wait for another process that renews the same token."""
LOCK_POLL_S = 0.05


@dataclass(frozen=True)
class DeviceCode:
    """The code that a person types at an address; ``complete_address`` has the code in it, or is empty."""

    address: str
    user_code: str
    complete_address: str
    expires_in_s: float


def sign_in_by_device(
    issuer: Issuer,
    client_id: str,
    show: Callable[[DeviceCode], None],
    sleep: Callable[[float], None] = time.sleep,
    clock_s: Callable[[], float] = time.monotonic,
) -> Tokens:
    """Return tokens once the person whom ``show`` tells has typed the code (RFC 8628).

    Raises Unavailable, Refused, and Unauthenticated when the code has expired.
    """
    fields = {"client_id": client_id, "scope": issuer.scope(*SCOPES, OFFLINE)}
    answer = issuer.post(DEVICE_ENDPOINT, fields)
    code, pause_s = _read_code(issuer, answer), _seconds(answer.get("interval"), POLL_S, POLL_S_MAX)
    show(code)
    ends_s = clock_s() + code.expires_in_s
    while clock_s() + pause_s < ends_s:
        sleep(pause_s)
        try:
            kind, given = "urn:ietf:params:oauth:grant-type:device_code", {"device_code": str(answer["device_code"])}
            return issuer.grant(kind, client_id, given)
        except Unavailable:
            pause_s = min(2 * pause_s, POLL_S_MAX)
        except Refused as refused:
            if refused.error == "slow_down":
                pause_s = min(pause_s + SLOWER_S, POLL_S_MAX)
            elif refused.error == "access_denied":
                raise Refused(f"the sign-in at {issuer.name} was denied", refused.error) from None
            elif refused.error == "expired_token":
                break
            elif refused.error != "authorization_pending":
                raise
    raise Unauthenticated(f"the code {code.user_code} has expired: the sign-in takes at most {code.expires_in_s:.0f} s")


def _read_code(issuer: Issuer, answer: dict[str, object]) -> DeviceCode:
    address, user_code = (str(answer.get(name) or "") for name in ("verification_uri", "user_code"))
    complete = str(answer.get("verification_uri_complete") or "")
    try:
        for each in filter(None, (address, complete)):
            check_address(each)
    except ValueError as error:
        raise Unavailable(f"the page of the issuer {issuer.name} for codes: {error}") from None
    if not (address and user_code and answer.get("device_code")):
        raise Unavailable(f"the issuer {issuer.name} answers without a code")
    expires_in_s = _seconds(answer.get("expires_in"), SIGN_IN_S_MAX, SIGN_IN_S_MAX)
    return DeviceCode(address, shorten(user_code, 100), complete, expires_in_s)


def _seconds(given: object, default_s: float, max_s: float) -> float:
    return min(float(given), max_s) if isinstance(given, int | float) and given > 0 else default_s


def sign_in_by_browser(
    issuer: Issuer, client_id: str, open_page: Callable[[str], None], timeout_s: float = SIGN_IN_S_MAX
) -> Tokens:
    """Return tokens once the page that ``open_page`` opens has sent the browser to a free port here (RFC 8252).

    Raises Unavailable, Refused, and Unauthenticated after ``timeout_s``.
    """
    server = HTTPServer(("127.0.0.1", 0), _Callback)
    try:
        callback = f"http://localhost:{server.server_address[1]}/callback"  # issuers allow any port of this name
        flow, address = issuer.begin(client_id, callback, OFFLINE)
        answer = _Answer(flow.state)
        server.answer = answer  # type: ignore[attr-defined]
        open_page(address)
        ends_s = time.monotonic() + timeout_s
        while not answer.has_come and (left_s := ends_s - time.monotonic()) > 0:
            server.timeout = left_s
            server.handle_request()
    finally:
        server.server_close()
    if not answer.has_come:
        raise Unauthenticated(f"the browser has not come back from {issuer.name} within {timeout_s:.0f} s")
    if not answer.code:
        raise Refused(f"the sign-in at {issuer.name} was denied: {answer.error}", answer.error)
    return issuer.finish(flow, client_id, answer.code, callback)


@dataclass
class _Answer:
    """The answer of the issuer by way of the browser; requests with another state are not from there."""

    state: str
    code: str = ""
    error: str = ""

    @property
    def has_come(self) -> bool:
        return bool(self.code or self.error)

    def take(self, target: str) -> tuple[int, str]:
        """Note the answer in the target of a request, and return the status and text for the browser."""
        parts = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(parts.query, max_num_fields=20).items()}
        if parts.path != "/callback":
            return 404, "There is nothing here."
        if not secrets.compare_digest(query.get("state", "").encode(), self.state.encode()):
            return 400, "This is not the answer to the sign-in that waits here."
        self.code, self.error = query.get("code", ""), shorten(query.get("error") or "no reason", 200)
        if not self.code:
            return 401, f"The issuer refuses: {self.error}."
        return 200, "You can close this page, and go back to the command line."


class _Callback(BaseHTTPRequestHandler):
    timeout = CONNECTION_S

    def do_GET(self) -> None:
        try:
            status, text = self.server.answer.take(self.path)  # type: ignore[attr-defined]
        except ValueError:
            status, text = 400, "This address is not understood."
        content = f"<!doctype html><meta charset=utf-8><title>Peloton</title><p>{escape(text)}\n".encode()
        self.send_response(status)
        for key, value in (("content-type", "text/html"), ("content-length", str(len(content)))):
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Print nothing: the address has the code."""


def store_sign_in(address: str, issuer: Issuer, client_id: str, tokens: Tokens) -> Path:
    """Write the token for the API at an address, and what renews it, and return the path of the token."""
    path = credentials_file(address)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _lock(path):
        _write(path, issuer, client_id, tokens)
    return path


def renew(token_file: Path) -> None:
    """Renew the token of a file that is due, once for all processes that find it so.

    Raises Unavailable, also for a folder that cannot be written, and Unauthenticated where the user has to sign in
    again.
    """
    try:
        _renew_locked(token_file)
    except OSError as error:
        raise Unavailable(f"token file {token_file} cannot be renewed: {error.strerror}") from None


def _renew_locked(token_file: Path) -> None:
    with _lock(token_file):
        found = read_sign_in(token_file)
        if found is None or time.time() < found.renew_at_s:  # another process has renewed it
            return
        issuer = discover(found.issuer, found.ca_file)
        try:
            tokens = issuer.grant("refresh_token", found.client_id, {"refresh_token": found.refresh_token})
        except Refused as refused:
            raise Unauthenticated(f"{refused.message}: sign in again by peloton login") from None
        kept = tokens.refresh_token or found.refresh_token  # some issuers give a new one each time
        _write(token_file, issuer, found.client_id, Tokens(tokens.id_token, kept))


def _write(path: Path, issuer: Issuer, client_id: str, tokens: Tokens) -> None:
    """Write both files. The refresh token first, and as due: if the process dies then, it renews the old token."""
    token = check_token(tokens.id_token, f"the ID token of {issuer.name}")
    now_s, expires_s = time.time(), expiry_of(token)
    renew_at_s = expires_s - min(EARLY_S, EARLY_SHARE * max(expires_s - now_s, 0.0))
    kept = SignIn(issuer.name, client_id, tokens.refresh_token, renew_at_s, expires_s, issuer.ca_file)
    if tokens.refresh_token:
        write_sign_in(path, replace(kept, renew_at_s=0.0))
    else:
        sign_in_file(path).unlink(missing_ok=True)
    write_token(path, token)
    if tokens.refresh_token:
        write_sign_in(path, kept)


def expiry_of(token: str) -> float:
    """Return the Unix time at which a JWT expires; infinite where it names none."""
    expires = claims_of(token).get("exp")
    return float(expires) if isinstance(expires, int | float) else float("inf")


def delete_sign_in(token_file: Path) -> tuple[list[Path], str]:
    """Delete the token and what renews it, and end the sign-in at the issuer where it offers that.

    Return the deleted files, and why the issuer did not end the sign-in; "": it did, or there was nothing to end.
    Raises FileNotFoundError where neither file is there.
    """
    found, fault = None, ""
    with _lock(token_file):
        try:
            found = read_sign_in(token_file)
        except PelotonError as error:  # it is deleted, too
            fault = f"{error.message}; it lasts until the issuer ends it"
        deleted = [path for path in (sign_in_file(token_file), token_file) if _delete(path)]
    if not deleted:
        raise FileNotFoundError(token_file)
    return deleted, fault if found is None else _end_at_issuer(found)


def _delete(path: Path) -> bool:
    """Return whether there was a file to delete."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def _end_at_issuer(found: SignIn) -> str:
    try:
        issuer = discover(found.issuer, found.ca_file)
        if not issuer.find(REVOCATION_ENDPOINT):
            return f"{found.issuer} offers no end of a sign-in"
        issuer.post(REVOCATION_ENDPOINT, {"client_id": found.client_id, "token": found.refresh_token})
    except PelotonError as error:
        return error.message
    return ""


@contextmanager
def _lock(token_file: Path) -> Iterator[None]:
    """Hold the lock of a token among processes and threads. Raises Unavailable."""
    descriptor = os.open(token_file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        ends_s = time.monotonic() + RENEWAL_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > ends_s:
                    raise Unavailable(
                        f"another process has renewed the token {token_file} for more than {RENEWAL_S:.0f} s: try again"
                    ) from None
                time.sleep(LOCK_POLL_S)
        yield
    finally:
        os.close(descriptor)
