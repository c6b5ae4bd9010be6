"""Operations of administrators on versions of the workers: read, promote, roll back. The api serves them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from peloton.errors import Aborted, Unavailable
from peloton.lifecycle.worker_ramp import Act, Decision, Fleet, Outlook, Promotion, decide, promote, rollback
from peloton.lifecycle.worker_versions import UNVERSIONED
from services.temporal.worker_fleet import apply, give_up, pardon, read_fleet, set_ramping

CONFLICT = "conflict token"
"""Temporal's message for an operation on an outdated state of the deployment."""


class WorkerAdmin:
    def __init__(self, client: Client, promotion: Promotion) -> None:
        self._client, self._promotion = client, promotion

    async def read(self) -> Outlook:
        """Return the fleet of workers. Raises Unavailable when Temporal does not answer."""
        with _refusals():
            fleet = await read_fleet(self._client, with_past=True)
        return Outlook(fleet, decide(fleet, time.time(), self._promotion), self._promotion)

    async def promote(self, build: str, percent: float) -> Outlook:
        """Route ``percent`` of the workflows to a version, or all of them at 0. The call is idempotent. Raises Aborted
        for a version that cannot be promoted, and Unavailable.
        """
        with _refusals():
            fleet = await read_fleet(self._client)
            decision = promote(fleet, build, percent)
            await pardon(self._client, build)
            await self._turn_to(fleet, decision, f"version {build} was promoted by a person instead")
        return await self.read()

    async def roll_back(self) -> Outlook:
        """Stop the ramp of a version, or return from the current version to the previous one. Raises Aborted when there
        is none, and Unavailable.
        """
        with _refusals():
            fleet = await read_fleet(self._client)
            decision = rollback(fleet)
            if decision.act is Act.GIVE_UP:
                await apply(self._client, fleet, decision)
            else:
                await self._turn_to(fleet, decision, "rolled back by a person")
        return await self.read()

    async def _turn_to(self, fleet: Fleet, decision: Decision, verdict: str) -> None:
        """Route to a version, and first reject newer ones, which would ramp again otherwise."""
        for newer in fleet.newer_than(decision.build):
            await give_up(self._client, newer, verdict)
        if fleet.ramping not in (UNVERSIONED, decision.build):
            fleet = replace(fleet, token=await set_ramping(self._client, UNVERSIONED, 0.0, fleet.token))
        await apply(self._client, fleet, decision)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise Aborted(str(error)) from None
    except RuntimeError as error:  # the client has not connected yet
        raise Unavailable(f"Temporal cannot be reached: {error}") from None
    except RPCError as error:
        if error.status is RPCStatusCode.FAILED_PRECONDITION and CONFLICT in error.message:
            raise Aborted(
                "another person, or the resource manager, changed the versions of the workers meanwhile: check "
                "them with `peloton admin worker ls`, then retry"
            ) from None
        if error.status is RPCStatusCode.FAILED_PRECONDITION:  # its workers do not poll all task queues yet
            raise Aborted(f"Temporal refuses it: {error.message}") from None
        raise Unavailable(f"Temporal did not answer about versions of the workers: {error.message}") from None
