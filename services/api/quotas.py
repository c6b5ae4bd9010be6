"""Quotas of users, checked when a job is created."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from peloton.access.caller import CallerKind
from peloton.api.service_names import BULK_SERVICE, JOB_MANAGER, JOB_SERVICE
from peloton.errors import Reason, ResourceExhausted
from services.access.caller import CALLER
from services.grpc_handlers import AroundCalls, within

MINUTE_S = 60.0
USERS_MAX = 10_000
"""Users that are remembered; the one that submitted longest ago is forgotten first."""
SUBMITS = frozenset(
    {
        *(f"/{name}/Create" for name in JOB_MANAGER),
        *(f"/{name}/CreateJob" for name in (*BULK_SERVICE, *JOB_SERVICE)),
    }
)


class QuotaGate(AroundCalls):
    """Interceptor that limits the jobs that each user creates in a minute; 0: there is no limit.

    A user may create a whole minute's jobs at once. Callers without a name share one quota; processes of Peloton have
    none.
    """

    def __init__(self, submissions_per_minute: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock_s = submissions_per_minute, clock_s
        self._users: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wrap(self, method: str, handler: Any) -> Any:
        if not self._most or method not in SUBMITS:
            return handler

        @asynccontextmanager
        async def admit(request: Any, _: Any) -> AsyncIterator[Any]:
            caller = CALLER.get()
            if caller.kind is not CallerKind.ROLE:
                self.take(caller.name)
            yield request

        return within(handler, admit, handler.request_deserializer)

    def take(self, user: str) -> None:
        """Count a submission. Raises ResourceExhausted beyond the quota."""
        now_s, rate = self._clock_s(), self._most / MINUTE_S
        left, at_s = self._users.get(user, (float(self._most), now_s))
        left = min(left + (now_s - at_s) * rate, float(self._most))
        if left < 1.0:
            wait_s = (1.0 - left) / rate
            raise ResourceExhausted(
                f"user {user} has created {self._most} jobs within a minute, which is the quota: try again in "
                f"{wait_s:.1f} s",
                wait_s,
            ).because(Reason.QUOTA_REACHED, user=user, quota="submissions_per_minute", limit=self._most)
        self._users[user] = left - 1.0, now_s
        self._users.move_to_end(user)
        if len(self._users) > USERS_MAX:
            self._users.popitem(last=False)
