"""A stand-in for an OIDC issuer, with code flow, device flow, refresh tokens and their end, and a page of its users."""

from __future__ import annotations

import json
import secrets
import threading
import time
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import urlopen

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

KEY = ec.generate_private_key(ec.SECP256R1())
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
Answer = tuple[int, dict[str, Any]]


@dataclass
class StandIn:
    """Values that change how the issuer behaves, and what it has seen."""

    address: str = ""
    users: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"ann@x.org": ("maps",)})
    """The groups of each user."""
    client_id: str = "peloton"
    audience: str = ""
    """Audience of tokens; empty: the client."""
    offers_device: bool = True
    approves: str = ""
    """User who types each code at once; empty: none does."""
    interval_s: float = 1.0
    life_s: float = 600.0
    refusals: list[str] = field(default_factory=list)
    """Errors that the next requests for tokens get."""
    renews: bool = True
    grants: Counter[str] = field(default_factory=Counter)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    """Codes of both flows, with the query that they are for; ``user`` once the user has signed in."""
    renewing: dict[str, str] = field(default_factory=dict)
    """Users by their refresh tokens."""

    def document(self) -> dict[str, Any]:
        kinds = {"authorization": "authorize", "token": "token", "revocation": "revoke"}
        found: dict[str, Any] = {f"{kind}_endpoint": f"{self.address}/{path}" for kind, path in kinds.items()}
        if self.offers_device:
            found["device_authorization_endpoint"] = f"{self.address}/device/code"
        scopes = ["openid", "email", "groups", "offline_access"]
        return {"issuer": self.address, "jwks_uri": f"{self.address}/keys", "scopes_supported": scopes, **found}

    def keys(self) -> dict[str, Any]:
        maker: Any = jwt.algorithms.ECAlgorithm
        row = {**json.loads(maker.to_jwk(KEY.public_key())), "kid": "one", "alg": "ES256", "use": "sig"}
        return {"keys": [row]}

    def sign(self, user: str, nonce: str = "") -> str:
        now_s = time.time()
        claims = {
            "iss": self.address, "aud": self.audience or self.client_id, "sub": user, "exp": now_s + self.life_s,
            "email": user, "email_verified": True, "groups": self.users[user], "jti": secrets.token_hex(4),
        }  # fmt: skip
        return jwt.encode(claims | ({"nonce": nonce} if nonce else {}), KEY, "ES256", headers={"kid": "one"})

    def begin_device(self, form: Mapping[str, str]) -> Answer:
        code, user_code = secrets.token_hex(8), secrets.token_hex(3).upper()
        self.codes[code] = {"user_code": user_code, **form} | ({"user": self.approves} if self.approves else {})
        page = f"{self.address}/device"
        return 200, {
            "device_code": code, "user_code": user_code, "expires_in": 60, "interval": self.interval_s,
            "verification_uri": page,
            "verification_uri_complete": f"{page}?user_code={user_code}",
        }  # fmt: skip

    def approve(self, user: str, user_code: str = "") -> None:
        """Sign the user in at the device page, with the code that was given out last."""
        codes = [each for each in self.codes.values() if user_code in ("", each.get("user_code", ""))]
        codes[-1]["user"] = user

    def give_tokens(self, form: Mapping[str, str]) -> Answer:
        kind = form.get("grant_type", "")
        self.grants[kind] += 1
        if self.refusals:
            return _refuse(self.refusals.pop(0))
        if form.get("client_id") != self.client_id:
            return _refuse("invalid_client")
        if kind == "refresh_token":
            user = self.renewing.pop(form.get("refresh_token", ""), "")
            return self._answer(user, {}) if user and self.renews else _refuse("invalid_grant", "the session has ended")
        found = self.codes.get(form.get("device_code" if kind == DEVICE_GRANT else "code", ""))
        if found is None:
            return _refuse("invalid_grant")
        if kind == DEVICE_GRANT and "user" not in found:
            return _refuse("authorization_pending")
        if kind == "authorization_code" and not _proves(found, form):
            return _refuse("invalid_grant", "PKCE")
        return self._answer(found["user"], found)

    def _answer(self, user: str, asked: Mapping[str, str]) -> Answer:
        answer = {"token_type": "bearer", "id_token": self.sign(user, asked.get("nonce", ""))}
        if self.renews:
            answer["refresh_token"] = secrets.token_hex(16)
            self.renewing[answer["refresh_token"]] = user
        return 200, answer


def _refuse(error: str, description: str = "") -> Answer:
    return 400, {"error": error, "error_description": description}


def _proves(asked: Mapping[str, str], form: Mapping[str, str]) -> bool:
    challenge = urlsafe_b64encode(sha256(form.get("code_verifier", "").encode()).digest()).decode().rstrip("=")
    return (asked["code_challenge"], asked["redirect_uri"]) == (challenge, form.get("redirect_uri"))


class _Handler(BaseHTTPRequestHandler):
    stand_in: StandIn
    timeout = 10

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = _read_query(parts.query)
        found = self.stand_in
        if parts.path == "/authorize":
            self._authorize(query)
        elif parts.path == "/keys":
            self._send(200, found.keys())
        elif parts.path == "/.well-known/openid-configuration":
            self._send(200, found.document())
        else:
            self._send(404, {})

    def do_POST(self) -> None:
        form = _read_query(self.rfile.read(int(self.headers.get("content-length", "0"))).decode())
        found = self.stand_in
        if self.path == "/token":
            self._send(*found.give_tokens(form))
        elif self.path == "/device/code":
            self._send(*found.begin_device(form))
        elif self.path == "/revoke":
            found.renewing.pop(form.get("token", ""), None)
            self._send(200, {})
        else:
            self._send(404, {})

    def _authorize(self, query: dict[str, str]) -> None:
        """Answer with a page of links, one of each user and one that denies, and follow the link that was chosen."""
        if "user" not in query and "denies" not in query:
            links = [("user", user, f"Continue as {user}") for user in self.stand_in.users] + [("denies", "1", "Deny")]
            rows = (f"<p><a href='?{urlencode({**query, k: v})}'>{escape(text)}</a>" for k, v, text in links)
            self._send_text(200, f"<!doctype html><html lang=en><title>Issuer</title>{''.join(rows)}</html>")
            return
        answer = {"state": query["state"]}
        if "denies" in query:
            answer["error"] = "access_denied"
        else:
            answer["code"] = secrets.token_hex(8)
            self.stand_in.codes[answer["code"]] = query
        self._send_text(303, "", {"location": f"{query['redirect_uri']}?{urlencode(answer)}"})

    def _send(self, status: int, document: dict[str, Any]) -> None:
        self._send_text(status, json.dumps(document), {"content-type": "application/json"})

    def _send_text(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        content = text.encode()
        self.send_response(status)
        for key, value in {"content-type": "text/html", **(headers or {}), "content-length": len(content)}.items():
            self.send_header(key, str(value))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Print nothing."""


def _read_query(text: str) -> dict[str, str]:
    return {key: values[0] for key, values in parse_qs(text).items()}


@contextmanager
def serve_issuer(**behaviour: Any) -> Iterator[StandIn]:
    stand_in = StandIn(**behaviour)
    handler = type("Handler", (_Handler,), {"stand_in": stand_in})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    stand_in.address = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield stand_in
    finally:
        server.shutdown()
        server.server_close()


def browse(address: str, user: str = "ann@x.org") -> threading.Thread:
    """Sign a user in as a browser does, in a thread that is returned; "" denies."""
    chosen = {"user": user} if user else {"denies": "1"}

    def follow() -> None:
        with suppress(HTTPError), urlopen(f"{address}&{urlencode(chosen)}", timeout=10) as answer:
            answer.read()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    return thread
