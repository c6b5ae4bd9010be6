"""Continue-as-new of workflows: its conditions and its call.

A workflow continues as new when its history is long, and to run on another version of the workers: its run is pinned to
the version that began it, and the next run begins on the current one. The code of one version therefore rarely reads
the history of another; that happens only to runs whose version has no worker any more.
"""

from __future__ import annotations

from typing import Any, NoReturn

from temporalio import workflow
from temporalio.exceptions import FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.policies import PolicyActivities
    from workflows.policies import LOCAL_CALL, Policies

FRESH_POLICIES = "202611-fresh-policies"
"""Remove this patch when no workflow that release 0.1 began can run any more."""


class Renewal:
    """Continue-as-new of one run."""

    def __init__(self) -> None:
        self._begun_on = workflow.info().get_current_deployment_version()

    def should_continue_as_new(self, policies: Policies) -> bool:
        """Return whether the next run may begin. Requests of people are answered first, and the run takes its
        steps meanwhile, as wake-ups must not wait for an answer."""
        if not workflow.all_handlers_finished():
            return False
        info = workflow.info()
        return (
            policies.should_continue_as_new(info)
            or info.is_target_worker_deployment_version_changed()
            or self._was_moved(info)
        )

    def _was_moved(self, info: workflow.Info) -> bool:
        """Return whether the run was moved to another version. Workers without a version run code without this check,
        and their histories must replay.
        """
        current = info.get_current_deployment_version()
        return current is not None and bool(current.deployment_name) and current != self._begun_on


async def fresh_policies(policies: Policies) -> Policies:
    """Return the current policies of the installation, or ``policies`` when they cannot be read."""
    if not workflow.patched(FRESH_POLICIES):
        return policies
    try:
        fresh: dict[str, float] = await workflow.execute_local_activity_method(
            PolicyActivities.policies, summary="read the policies of the installation", **LOCAL_CALL
        )
    except FailureError as error:
        if is_cancelled_exception(error):
            raise
        return policies
    return policies.update(fresh)


async def continue_as_new(input: Any) -> NoReturn:
    """Begin the next run on the current version of the workers, once all requests of users are answered."""
    await workflow.wait_condition(workflow.all_handlers_finished)
    current = workflow.ContinueAsNewVersioningBehavior.AUTO_UPGRADE
    workflow.continue_as_new(input, initial_versioning_behavior=current)
