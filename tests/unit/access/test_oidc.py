"""JWTs of an issuer: claims, keys that rotate, and attacks on the signature."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from peloton.access.caller import CallerKind
from peloton.errors import Unauthenticated, Unavailable
from peloton.issuer import check_address, make_fetch
from services.access.issuer import read_keys
from services.access.oidc import KEYS_AGE_S, KEYS_KEPT_S, REFETCH_S, Oidc, OidcConfig

ISSUER, AUDIENCE = "https://issuer.example", "peloton"
RSA = rsa.generate_private_key(65537, 2048)
OTHER_RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())


def jwk(private: Any, kid: str, algorithm: str) -> dict[str, Any]:
    maker: Any = jwt.algorithms.RSAAlgorithm if algorithm.startswith("R") else jwt.algorithms.ECAlgorithm
    return {**json.loads(maker.to_jwk(private.public_key())), "kid": kid, "alg": algorithm, "use": "sig"}


class Issuer:
    """An issuer whose documents are values, and a clock."""

    def __init__(self) -> None:
        self.keys = [jwk(RSA, "one", "RS256"), jwk(EC, "two", "ES256")]
        self.name, self.fetches, self.is_away, self.now_s = ISSUER, 0, False, 1_000.0

    def fetch(self, address: str) -> bytes:
        self.fetches += 1
        if self.is_away:
            raise OSError("no route")
        if address == f"{ISSUER}/.well-known/openid-configuration":
            return json.dumps({"issuer": self.name, "jwks_uri": f"{ISSUER}/keys"}).encode()
        return json.dumps({"keys": self.keys}).encode()


async def run(call: Callable[..., Any], *args: Any) -> Any:
    return call(*args)


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def oidc(issuer: Issuer) -> Oidc:
    return Oidc(OidcConfig(ISSUER, AUDIENCE), issuer.fetch, lambda: issuer.now_s, run)


def claims(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    found = {
        "iss": ISSUER, "aud": AUDIENCE, "sub": "1", "exp": now + 600, "iat": now, "email": "ann@x.org",
        "email_verified": True, "groups": ["maps"], "jti": "j",
    } | changes  # fmt: skip
    return {key: value for key, value in found.items() if value is not None}


def sign(key: Any = RSA, kid: str = "one", algorithm: str = "RS256", **changes: Any) -> str:
    return jwt.encode(claims(**changes), key, algorithm, headers={"kid": kid})


def by_hand(header: dict[str, Any], body: Any, signature: bytes = b"") -> str:
    parts = [json.dumps(header).encode(), json.dumps(body).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


async def test_a_signed_token_names_user_and_groups(oidc: Oidc) -> None:
    """Keys of each kind are found by their ids."""
    for token in (sign(), sign(EC, "two", "ES256")):
        caller, expires_s = await oidc.authenticate(token)
        assert ("ann@x.org", CallerKind.USER, ("maps",), ISSUER, "j") == (
            caller.name, caller.kind, caller.groups, caller.issuer, caller.token_id,
        )  # fmt: skip
        assert 600 < expires_s - time.time() < 700


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"exp": 1_000}, "expired"),
        ({"exp": None}, "exp"),
        ({"nbf": int(time.time()) + 3_600}, "not yet valid"),
        ({"aud": "other"}, "for another audience than peloton, the client of this cluster"),
        ({"aud": None}, "aud"),
        ({"iss": "https://evil.example"}, "issuer"),
        ({"sub": None}, "sub"),
        ({"email": None}, "claim email"),
        ({"email": ["a"]}, "claim email"),
        ({"email": "x" * 301}, "claim email"),
        ({"email_verified": False}, "has not verified"),
        ({"email_verified": "true"}, "has not verified"),
        ({"groups": "admins"}, "claim groups"),
        ({"groups": ["g"] * 1_001}, "claim groups"),
    ],
)
async def test_a_token_with_bad_claims_is_refused(oidc: Oidc, changes: dict[str, Any], text: str) -> None:
    """The refusal names the claim."""
    with pytest.raises(Unauthenticated, match=text):
        await oidc.authenticate(sign(**changes))


async def test_tokens_of_the_client_of_commands_are_accepted(issuer: Issuer) -> None:
    """The error names both ids."""
    oidc = Oidc(OidcConfig(ISSUER, AUDIENCE, login_client="cli"), issuer.fetch, lambda: issuer.now_s, run)
    for audience in ("cli", AUDIENCE):
        assert "ann@x.org" == (await oidc.authenticate(sign(aud=audience)))[0].name
    with pytest.raises(Unauthenticated, match="than peloton or cli"):
        await oidc.authenticate(sign(aud="other"))


PUBLIC = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def hmac_with_public_key() -> str:
    """Return a token signed with the public key as a secret, which the library itself would not make."""
    import hashlib
    import hmac

    unsigned = by_hand({"alg": "HS256", "kid": "one"}, claims()).rsplit(".", 1)[0]
    return (
        unsigned
        + "."
        + base64.urlsafe_b64encode(hmac.new(PUBLIC, unsigned.encode(), hashlib.sha256).digest()).decode().rstrip("=")
    )


@pytest.mark.parametrize(
    "token",
    [
        by_hand({"alg": "none", "kid": "one"}, claims()),
        by_hand({"alg": "None", "kid": "one"}, claims()),
        by_hand({"kid": "one"}, claims()),
        by_hand({"alg": ["RS256"], "kid": "one"}, claims()),
        by_hand({"alg": "RS256", "kid": ["one"]}, claims()),
        by_hand({"alg": "RS256", "kid": "../../dev/null"}, claims()),
        by_hand({"alg": "RS256", "kid": "one' OR 1=1"}, claims()),
        by_hand({"alg": "RS256", "kid": "one", "jku": "https://evil.example", "crit": ["jku"]}, claims()),
        by_hand({"alg": "RS256", "kid": "one", "jwk": jwk(OTHER_RSA, "one", "RS256")}, claims(), b"x" * 256),
        by_hand({"alg": "ES256", "kid": "two"}, claims(), b"\0" * 64),
        by_hand({"alg": "ES256", "kid": "one"}, claims(), b"\0" * 64),
        hmac_with_public_key(),
        sign(OTHER_RSA),
        sign(RSA, "one", "RS512"),
        sign(RSA, "two"),
        sign()[:-8] + "AAAAAAAA",
        "..", "a.b.c", "e30.e30.", "\0.\0.\0", "x" * 16_000, "[" * 8_000 + "..",
    ],
)  # fmt: skip
async def test_attacks_on_the_signature_are_refused(oidc: Oidc, token: str) -> None:
    """The algorithm and the key are those of the issuer, whatever the token says."""
    with pytest.raises(Unauthenticated):
        await oidc.authenticate(token)


async def test_a_rotated_key_is_read_once_for_unknown_ids(oidc: Oidc, issuer: Issuer) -> None:
    """A flood of unknown ids asks the issuer once in REFETCH_S."""
    await oidc.authenticate(sign())
    assert 2 == issuer.fetches
    issuer.keys = [jwk(OTHER_RSA, "three", "RS256")]
    issuer.now_s += REFETCH_S
    await oidc.authenticate(sign(OTHER_RSA, "three"))
    for _ in range(100):
        with pytest.raises(Unauthenticated):
            await oidc.authenticate(sign())
    assert 4 == issuer.fetches


async def test_keys_outlast_an_issuer_that_is_away(oidc: Oidc, issuer: Issuer) -> None:
    """Old keys are used for a day; without any, callers may try again."""
    issuer.is_away = True
    with pytest.raises(Unavailable):
        await oidc.authenticate(sign())
    issuer.is_away, issuer.now_s = False, issuer.now_s + REFETCH_S
    await oidc.authenticate(sign())
    issuer.is_away, issuer.now_s = True, issuer.now_s + KEYS_AGE_S + 1
    await oidc.authenticate(sign())
    issuer.now_s += KEYS_KEPT_S
    with pytest.raises(Unavailable):
        await oidc.authenticate(sign())


def test_documents_of_the_issuer_are_checked(issuer: Issuer) -> None:
    """The issuer must call itself by its address, and secret keys are none of its public ones."""
    issuer.keys.append({"kty": "oct", "k": "c2VjcmV0", "kid": "four", "alg": "HS256"})
    issuer.keys.append({"kty": "odd", "kid": "five"})
    assert ["one", "two"] == sorted(read_keys(ISSUER, issuer.fetch))
    issuer.name = "https://evil.example"
    with pytest.raises(ValueError, match="calls itself"):
        read_keys(ISSUER, issuer.fetch)


@pytest.mark.parametrize("address", ["http://issuer.example", "file:///etc/passwd", "ftp://x", "", "//x"])
def test_addresses_are_https_or_local(address: str) -> None:
    """Keys travel by TLS, or on this machine."""
    with pytest.raises(ValueError, match="want https"):
        check_address(address)
    with pytest.raises(ValueError, match="want https"):
        make_fetch()(address)
