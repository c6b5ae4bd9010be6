"""Shares of the calls that an api has in progress: neither callers without credentials nor one user hold all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from peloton.access.caller import Caller, CallerKind
from peloton.access.rules import MethodRule, Needs
from peloton.errors import Reason, ResourceExhausted
from services.access.caller import CALLER
from services.servers.grpc_bounds import Incoming
from services.servers.grpc_handlers import AroundCalls, within
from services.servers.places import RETRY_AFTER_S, Places, Tally

ANONYMOUS_CALLS_MAX = 100
"""Calls in progress of all callers without credentials. One more ends the oldest of them."""
ANONYMOUS_REQUESTS_MAX = 8
"""Calls without credentials whose request is on its way, each of which may take the size of a message."""
ANONYMOUS_REQUEST_S = 5.0
"""Time for the first message of a call without credentials, in seconds."""
CALLER_SHARE = 3
"""A caller has at most this part of the calls in progress: a third."""


class Share(AroundCalls):
    """Interceptor below the one that identifies callers, and above the one that reads requests."""

    def __init__(self, is_enforced: bool, rules: Mapping[str, MethodRule], calls_max: int) -> None:
        """``is_enforced``: callers need credentials; without it only methods that are open to all have a bound."""
        self._is_enforced, self._rules = is_enforced, rules
        self._of_caller_max = calls_max // CALLER_SHARE
        self._of_callers = Tally()
        self._anonymous = Places(ANONYMOUS_CALLS_MAX, "calls without credentials", "anonymous_calls")
        self._requests = Places(ANONYMOUS_REQUESTS_MAX, "requests without credentials", "anonymous_requests")

    def wrap(self, method: str, handler: Any) -> Any:
        rule = self._rules.get(method)
        is_open = rule is not None and rule.needs is Needs.NOTHING
        if not is_open and not self._is_enforced:
            return handler

        @asynccontextmanager
        async def take(request: Incoming, _: Any) -> AsyncIterator[Incoming]:
            caller = CALLER.get()
            if caller.is_anonymous:
                request.wait_s, request.place = ANONYMOUS_REQUEST_S, self._requests.hold
                with self._anonymous.hold():
                    yield request
            elif caller.kind is CallerKind.ROLE:
                yield request
            else:
                self._check(caller)
                with self._of_callers.hold((caller.kind, caller.name)):
                    yield request

        return within(handler, take, handler.request_deserializer)

    def _check(self, caller: Caller) -> None:
        if self._of_callers.count((caller.kind, caller.name)) >= self._of_caller_max:
            text = f"{caller} has {self._of_caller_max} calls in progress, the bound of each: try again later"
            raise ResourceExhausted(text, RETRY_AFTER_S).because(Reason.OVERLOADED, rule="calls_of_caller")
