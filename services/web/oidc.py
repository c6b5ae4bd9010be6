"""Sign-in at an OIDC issuer: authorization code flow with PKCE. The api verifies the token that comes of it."""

from __future__ import annotations

import json
import secrets
import ssl
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import HTTPSHandler, Request, build_opener

from peloton.errors import Unauthenticated, Unavailable
from services.access.files import read_bounded

DOCUMENT_BYTES_MAX = 2**20
TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Flow:
    """A sign-in that has begun; the viewer's browser keeps it, encrypted."""

    state: str
    verifier: str
    nonce: str


@dataclass(frozen=True)
class OidcClient:
    """Peloton at its issuer. Methods block, and raise Unavailable, Unauthenticated."""

    issuer: str
    client_id: str
    secret: str = ""
    ca_file: str = ""

    def begin(self, callback: str) -> tuple[Flow, str]:
        """Return a new flow, and the address at the issuer where the viewer proves who it is."""
        flow = Flow(secrets.token_urlsafe(32), secrets.token_urlsafe(48), secrets.token_urlsafe(32))
        challenge = urlsafe_b64encode(sha256(flow.verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": callback,
            "scope": "openid email profile groups",
            "state": flow.state,
            "nonce": flow.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return flow, f"{self._endpoint('authorization_endpoint')}?{urlencode(query)}"

    def finish(self, flow: Flow, code: str, callback: str) -> str:
        """Exchange the code for the token of the viewer."""
        from services.access.issuer import NoRedirects, parse_document

        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": callback,
            "client_id": self.client_id,
            "code_verifier": flow.verifier,
        }
        headers = {"accept": "application/json"}
        if self.secret:
            pair = f"{quote(self.client_id, safe='')}:{quote(self.secret, safe='')}"
            headers["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        request = Request(self._endpoint("token_endpoint"), urlencode(fields).encode(), headers)  # noqa: S310 - checked
        try:
            authorities = read_bounded(self.ca_file) if self.ca_file else None
            context = ssl.create_default_context(cadata=authorities)
            opener = build_opener(NoRedirects, HTTPSHandler(context=context))  # one would get the secret and the code
            with opener.open(request, timeout=TIMEOUT_S) as response:
                token = parse_document(response.read(DOCUMENT_BYTES_MAX)).get("id_token", "")
        except HTTPError as error:
            raise Unauthenticated(f"{self.issuer} refuses the code: HTTP status {error.code}") from None
        except (OSError, ValueError) as error:
            raise Unavailable(f"{self.issuer} does not answer: {error}") from None
        if not isinstance(token, str) or claims_of(token).get("nonce") != flow.nonce:
            raise Unauthenticated(f"{self.issuer} answers with a token of another sign-in")
        return token

    def _endpoint(self, name: str) -> str:
        from services.access.issuer import check_address, make_fetch, parse_document

        try:
            document = make_fetch(self.ca_file)(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
            address = str(parse_document(document).get(name, ""))
            check_address(address)
        except (OSError, ValueError) as error:
            raise Unavailable(f"{self.issuer} does not answer: {error}") from None
        return address


def claims_of(token: str) -> dict[str, Any]:
    """Return the claims of a JWT, which are not verified here; {} for another token."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
