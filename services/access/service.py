"""AccessService: the identity of the caller, and what it may do."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from peloton.access.caller import CLUSTER, Role
from peloton.access.decision import decide
from peloton.access.rules import MethodRule, Needs, Without
from peloton.access.table import RULES
from peloton.api.v0.access import access_pb2 as pb
from peloton.errors import InvalidArgument, NotFound
from peloton.model.text import quote
from services.access.access import Access, SignInPlace
from services.access.caller import CALLER
from services.access.ended_sessions import EndedSessions
from services.access.methods import first_name
from services.access.pools import PATH_CHARS_MAX, normalize_pool
from services.access.quotas import NO_QUOTAS, Quotas

METHOD_CHARS_MAX = 200


class AccessService:
    def __init__(self, access: Access | None, sessions: EndedSessions, quotas: Quotas = NO_QUOTAS) -> None:
        self._is_enforced, self._sessions, self._quotas = access is not None, sessions, quotas
        place = access.sign_in if access is not None else SignInPlace()
        self._sign_in = pb.SignInPlace(issuer=place.issuer, client_id=place.client_id)

    async def WhoAmI(self, request: pb.WhoAmIRequest, context: Any) -> pb.WhoAmIResponse:
        caller = CALLER.get()
        await self._sessions.check(caller, request.session)
        return pb.WhoAmIResponse(
            name=caller.name,
            kind=caller.kind,
            groups=caller.groups,
            issuer=caller.issuer,
            token_id=caller.token_id,
            via=caller.via,
            grants=[pb.Grant(role=grant.role, pool=grant.pool) for grant in caller.grants],
            method_role=caller.methods.role if caller.methods is not None else "",
            is_enforced=self._is_enforced,
            expires_at=_to_text(caller.expires_s) if caller.expires_s else "",
            sign_in=self._sign_in if self._sign_in.issuer else None,
            quotas=[
                pb.Quota(name=name, limit=limit.most, rule=limit.rule)
                for name, limit in self._quotas.list_limits(caller).items()
            ],
        )

    async def SignIn(self, request: pb.SignInRequest, context: Any) -> pb.SignInResponse:
        return pb.SignInResponse()

    async def SignOut(self, request: pb.SignOutRequest, context: Any) -> pb.SignOutResponse:
        await self._sessions.end(CALLER.get(), request.session, request.expires_ns)
        return pb.SignOutResponse()

    async def OpenTerminal(self, request: pb.OpenTerminalRequest, context: Any) -> pb.OpenTerminalResponse:
        return pb.OpenTerminalResponse()

    async def CanI(self, request: pb.CanIRequest, context: Any) -> pb.CanIResponse:
        if len(request.pool) > PATH_CHARS_MAX or (request.pool and not request.pool.startswith("/")):
            raise InvalidArgument(f"pool {quote(request.pool)}: want the path of a pool, such as /eng/maps")
        rule = find_rule(request.method, RULES)
        if request.pool:
            pools: tuple[str, ...] = (normalize_pool(request.pool),)
        else:
            pools = (CLUSTER,) if rule.without is Without.CLUSTER else ()
        decision = decide(CALLER.get(), rule, pools)
        return pb.CanIResponse(is_allowed=decision.is_allowed, reason=decision.reason)


def _to_text(at_s: float) -> str:
    return datetime.fromtimestamp(int(at_s), UTC).isoformat()


def find_rule(text: str, rules: Mapping[str, MethodRule]) -> MethodRule:
    """Return the rule of a role, or of a method by its name. Raises NotFound, InvalidArgument."""
    if text in set(Role):
        return MethodRule(f"methods of role {text}", Role(text))
    if len(text) > METHOD_CHARS_MAX:
        raise InvalidArgument(f"the name of a method has {len(text):,} characters, at most {METHOD_CHARS_MAX}")
    wanted = first_name(text.replace(":", "/"))
    if wanted in rules:
        return rules[wanted]
    ending = text.replace(":", "/").replace(".", "/")
    found = [
        rule
        for name, rule in rules.items()
        if name.replace(".", "/").endswith(f"/{ending}") and rule.needs is not Needs.PELOTON
    ]
    if not found:
        raise NotFound(f"no method is called {quote(text)}: want a role ({', '.join(Role)}) or SERVICE/METHOD")
    if len(found) > 1:
        names = ", ".join(sorted(rule.method for rule in found)[:5])
        raise InvalidArgument(f"{len(found)} methods are called {quote(text)}: {names}")
    return found[0]
