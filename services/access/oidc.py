"""Authenticator of JWTs that an OIDC issuer has signed.

Only asymmetric algorithms are accepted, whatever a token says. Keys come from the issuer alone: ``kid`` of a token
finds one among them, and other headers that name keys have no effect. Keys are read again when a token has an unknown
``kid``, at most once in REFETCH_S, and once in KEYS_AGE_S; while the issuer does not answer, old ones are used for
KEYS_KEPT_S.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jwt

from peloton.access.caller import Caller, CallerKind
from peloton.errors import Unauthenticated, Unavailable
from peloton.issuer import Fetch
from peloton.model.text import quote
from services.access.issuer import read_keys

log = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
CLOCK_SKEW_S = 60.0
KEYS_AGE_S = 3_600.0
KEYS_KEPT_S = 24 * 3_600.0
REFETCH_S = 10.0
NAME_CHARS_MAX = 300
GROUPS_MAX = 1_000
_REQUIRED = ["exp", "iss", "aud", "sub"]


@dataclass(frozen=True)
class OidcConfig:
    """``name_claim`` names the claim with the name of a user; ``email`` counts only when the issuer has verified it."""

    issuer: str
    audience: str
    name_claim: str = "email"
    groups_claim: str = "groups"
    login_client: str = ""

    @property
    def audiences(self) -> list[str]:
        """Return the audiences of which a token must name one."""
        return [each for each in (self.audience, self.login_client) if each]


class Oidc:
    """Verifies the JWTs of one issuer. For one event loop."""

    def __init__(
        self,
        config: OidcConfig,
        fetch: Fetch,
        clock_s: Callable[[], float] = time.monotonic,
        run: Callable[..., Awaitable[Any]] = asyncio.to_thread,
    ) -> None:
        self.config = config
        self._fetch, self._clock_s, self._run = fetch, clock_s, run
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._read_at_s = self._tried_at_s = -float("inf")
        self._lock = asyncio.Lock()

    async def authenticate(self, token: str) -> tuple[Caller, float]:
        """Return the caller, and the Unix time at which the token expires. Raises Unauthenticated, Unavailable."""
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.InvalidTokenError, RecursionError) as error:
            raise _refusal(error) from None
        algorithm, kid = header.get("alg"), header.get("kid", "")
        if algorithm not in ALGORITHMS:
            raise Unauthenticated(f"the JWT is signed by {quote(str(algorithm))}: want one of {', '.join(ALGORITHMS)}")
        if not isinstance(kid, str):
            raise Unauthenticated("the JWT has a kid that is no text")
        key = await self._key(kid)
        if key.algorithm_name != algorithm:
            raise Unauthenticated(f"the JWT is signed by {algorithm}, and its key is for {key.algorithm_name}")
        try:
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=self.config.audiences,
                issuer=self.config.issuer,
                leeway=CLOCK_SKEW_S,
                options={"require": _REQUIRED},
            )
        except jwt.InvalidAudienceError:
            wanted = " or ".join(self.config.audiences)
            raise Unauthenticated(
                f"the JWT is for another audience than {wanted}, the client of this cluster"
            ) from None
        except (jwt.InvalidTokenError, RecursionError, OverflowError) as error:
            raise _refusal(error) from None
        return self._caller(claims), float(claims["exp"]) + CLOCK_SKEW_S

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        config = self.config
        name, groups = claims.get(config.name_claim), claims.get(config.groups_claim, [])
        if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX:
            raise Unauthenticated(
                f"the JWT has no text of at most {NAME_CHARS_MAX} characters in claim {config.name_claim}"
            )
        if config.name_claim == "email" and claims.get("email_verified") is not True:
            raise Unauthenticated(f"the issuer of the JWT has not verified the address {quote(name)}")
        if not isinstance(groups, list) or len(groups) > GROUPS_MAX or not all(isinstance(one, str) for one in groups):
            raise Unauthenticated(f"the JWT has no list of at most {GROUPS_MAX:,} texts in claim {config.groups_claim}")
        token_id = claims.get("jti", "")
        known_id = token_id[:NAME_CHARS_MAX] if isinstance(token_id, str) else ""
        return Caller(name, CallerKind.USER, tuple(groups), issuer=config.issuer, token_id=known_id)

    async def _key(self, kid: str) -> jwt.PyJWK:
        """Return the key of the issuer with this id. Raises Unauthenticated, Unavailable."""
        if kid not in self._keys or self._clock_s() - self._read_at_s > KEYS_AGE_S:
            await self._read_keys(kid)
        if kid in self._keys:
            return self._keys[kid]
        if not self._keys:
            raise Unavailable(f"the keys of {self.config.issuer} are not known: it does not answer, try again")
        raise Unauthenticated(f"the issuer {self.config.issuer} has no key {quote(kid)}")

    async def _read_keys(self, kid: str) -> None:
        async with self._lock:
            now_s = self._clock_s()
            is_fresh = kid in self._keys and now_s - self._read_at_s <= KEYS_AGE_S
            if is_fresh or now_s - self._tried_at_s < REFETCH_S:
                return
            self._tried_at_s = now_s
            try:
                self._keys = await self._run(read_keys, self.config.issuer, self._fetch)
                self._read_at_s = now_s
            except (OSError, ValueError) as error:
                log.warning("the keys of %s cannot be read: %s", self.config.issuer, error)
                if now_s - self._read_at_s > KEYS_KEPT_S:
                    self._keys = {}


def _refusal(error: Exception) -> Unauthenticated:
    text = str(error) if isinstance(error, jwt.InvalidTokenError) else type(error).__name__
    return Unauthenticated(f"the JWT is invalid: {text[:200]}")
