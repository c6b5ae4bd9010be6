"""Interceptors of the api: the first identifies the caller before the request is read, the second decides by the table.

A stream is checked again every RECHECK_S, so that it ends when its token is revoked or expires.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

from peloton.access.caller import CLUSTER, Caller
from peloton.access.decision import decide, is_enough_on_cluster
from peloton.access.rules import MethodRule, Needs, Without
from peloton.errors import Aborted, PelotonError, PermissionDenied, Reason, Unauthenticated
from peloton.ports import PERSON
from services.access.access import Access
from services.access.caller import CALLER, CLIENT_OF_ROLE
from services.access.methods import names_in
from services.access.pools import PoolFinder
from services.servers.grpc_handlers import AroundCalls, within

log = logging.getLogger(__name__)

RECHECK_S = 30.0


class Identify(AroundCalls):
    """Sets CALLER. Without ``access`` the cluster asks for no credentials, and handlers stay as they are."""

    def __init__(self, access: Access | None, rules: Mapping[str, MethodRule]) -> None:
        self._access, self._rules = access, rules

    def wrap(self, method: str, handler: Any) -> Any:
        if self._access is None:
            return handler
        access, rule = self._access, self._rules.get(method)

        @asynccontextmanager
        async def identify(request: Any, context: Any) -> AsyncIterator[Any]:
            CLIENT_OF_ROLE.set(access.find_client(context))
            caller = await access.identify(context)
            check_identified(caller, rule)
            CALLER.set(caller)
            PERSON.set("" if caller.is_anonymous else caller.name)
            yield request

        return within(handler, identify, handler.request_deserializer)


class Authorize(AroundCalls):
    """Refuses calls that the table does not allow to the caller."""

    def __init__(self, access: Access | None, rules: Mapping[str, MethodRule], pools: PoolFinder) -> None:
        self._access, self._rules, self._pools = access, rules, pools

    def wrap(self, method: str, handler: Any) -> Any:
        if self._access is None:
            return handler
        rule = self._rules.get(method)
        if rule is not None and rule.needs is Needs.NOTHING:
            return handler

        @asynccontextmanager
        async def one(request: Any, context: Any) -> AsyncIterator[Any]:
            await self.check(CALLER.get(), method, rule, request)
            yield request

        @asynccontextmanager
        async def keep(request: Any, context: Any) -> AsyncIterator[Any]:
            await self.check(CALLER.get(), method, rule, request)
            async with self._ending_with_right(method, rule, request, context):
                yield request

        def stream(requests: AsyncIterator[Any], _: Any) -> aclosing[AsyncGenerator[Any, None]]:
            return aclosing(self._check_each(method, rule, requests))

        around = stream if handler.request_streaming else keep if handler.response_streaming else one
        return within(handler, around, handler.request_deserializer)

    async def check(self, caller: Caller, method: str, rule: MethodRule | None, request: Any) -> None:
        """Raise PermissionDenied unless the caller may make the call."""
        if rule is None:
            raise PermissionDenied(f"{caller} may not call {method}: the method has no rule")
        if is_enough_on_cluster(caller, rule):
            return
        named = list(names_in(rule, method, request))
        if named:
            pools = await self._pools.paths_of(named)
        else:
            pools = (CLUSTER,) if rule.without is Without.CLUSTER else ()
        check_allowed(caller, rule, pools)

    async def _check_each(
        self, method: str, rule: MethodRule | None, requests: AsyncIterator[Any]
    ) -> AsyncGenerator[Any, None]:
        """Yield the messages of a stream: the first one, and each later one that names an object, is checked."""
        is_first = True
        async for request in requests:
            if is_first or (rule is not None and any(names_in(rule, method, request))):
                await self.check(CALLER.get(), method, rule, request)
            is_first = False
            yield request

    @asynccontextmanager
    async def _ending_with_right(
        self, method: str, rule: MethodRule | None, request: Any, context: Any
    ) -> AsyncIterator[None]:
        """End the block when the credentials or the permission of the call end."""
        assert self._access is not None
        access, answering, first = self._access, asyncio.current_task(), CALLER.get()
        assert answering is not None
        refusals: list[PelotonError] = []

        async def check_again() -> None:
            while not refusals:
                await asyncio.sleep(RECHECK_S)
                try:
                    caller = await access.identify(context)
                    await self.check(caller, method, rule, request)
                    check_same_view(first, caller, rule)
                except (Unauthenticated, PermissionDenied, Aborted) as error:
                    refusals.append(error)
                except PelotonError as error:  # storage or the issuer does not answer now
                    log.warning("%s is checked again later: %s", method, error)
            answering.cancel()

        checking = asyncio.create_task(check_again())
        try:
            yield
        except asyncio.CancelledError:
            if not refusals:
                raise
            answering.uncancel()
            raise refusals[0] from None
        finally:
            checking.cancel()


def check_identified(caller: Caller, rule: MethodRule | None) -> None:
    """Raise Unauthenticated for a caller without credentials that may call nothing."""
    is_open = rule is not None and rule.needs is Needs.NOTHING
    if caller.is_anonymous and not caller.grants and caller.methods is None and not is_open:
        method = rule.method if rule is not None else "this method"
        raise Unauthenticated(
            f"{method} needs credentials: a token (`peloton login`, PELOTON_TOKEN), a user name and password, or a "
            f"client certificate"
        )


def check_same_view(first: Caller, caller: Caller, rule: MethodRule | None) -> None:
    """Raise Aborted when a stream shows what the caller might read at its beginning, and its roles have changed."""
    is_filtered = rule is not None and rule.without is Without.FILTERED
    if is_filtered and (caller.grants, caller.methods) != (first.grants, first.methods):
        raise Aborted(f"the roles of {caller} have changed: watch again").because(Reason.WATCH_OVERFLOW)


def check_allowed(caller: Caller, rule: MethodRule, pools: tuple[str, ...]) -> None:
    """Raise PermissionDenied, or Unauthenticated for a caller without credentials, unless the table allows the call."""
    decision = decide(caller, rule, pools)
    if decision.is_allowed:
        return
    log.info("refused: %s", decision.reason)
    if caller.is_anonymous:
        raise Unauthenticated(decision.reason)
    raise PermissionDenied(decision.reason).because(
        PermissionDenied.reason, caller=caller.name, method=rule.method, role=rule.role, pool=decision.pool
    )
