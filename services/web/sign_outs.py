"""Sign-outs at the api, which has all web processes refuse a session. What it does not know yet is sent again."""

from __future__ import annotations

import asyncio
import logging

import grpc
import grpc.aio

from peloton.api.v0.access import access_pb2 as pb
from peloton.lifecycle.backoff import Backoff
from peloton.model.times import NS_PER_S
from services.web.api import Api
from services.web.faults import refusal_of
from services.web.viewer import Viewer

log = logging.getLogger(__name__)

REPEATED_MAX = 1_000
"""Maximum number of sign-outs that a process sends again; further ones are sent once."""
SEND_S = 5.0
"""Timeout of one call, for which the viewer waits."""
PAUSES = Backoff(initial_s=1, max_s=30)
_FINAL = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
)
"""Answers that another try would not change."""


class SignOuts:
    """Sign-outs of one process, for one event loop."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._repeating: set[asyncio.Task[None]] = set()

    async def end(self, viewer: Viewer) -> str:
        """Have the api refuse the session of the viewer. Return why a copy of it may count at other processes; empty:
        it counts nowhere.

        A session whose token is refused counts nowhere.
        """
        error = await self._send(viewer)
        if error is None or error.code() is grpc.StatusCode.UNAUTHENTICATED:
            return ""
        if is_repeated := error.code() not in _FINAL and len(self._repeating) < REPEATED_MAX:
            task = asyncio.create_task(self._repeat(viewer))  # with the credentials of this request
            self._repeating.add(task)
            task.add_done_callback(self._repeating.discard)
        hope = "it is sent again until the session expires" if is_repeated else "a copy of the session counts there"
        return f"signed out here, and other web processes do not know of it: {hope}: {refusal_of(error).message}"

    async def _repeat(self, viewer: Viewer) -> None:
        failures = 1
        while not viewer.has_expired():
            await asyncio.sleep(PAUSES.delay_s(failures))
            error = await self._send(viewer)
            if error is None or error.code() in _FINAL:
                log.info("the sign-out of session %s is known to the api after %d tries", viewer.session, failures + 1)
                return
            failures += 1

    async def _send(self, viewer: Viewer) -> grpc.aio.AioRpcError | None:
        request = pb.SignOutRequest(session=viewer.session, expires_ns=int(viewer.expires_s * NS_PER_S))
        try:
            await self._api.access.SignOut(request, timeout=SEND_S)
        except grpc.aio.AioRpcError as error:
            return error
        return None

    async def close(self) -> None:
        """Give up what the api does not know yet."""
        if self._repeating:
            log.warning("%d sign-outs are not known to the api: their sessions count elsewhere", len(self._repeating))
        for task in self._repeating:
            task.cancel()
        await asyncio.gather(*self._repeating, return_exceptions=True)
