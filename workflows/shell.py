"""Shell of a workflow that turns on signals: signal -> step -> wait -> continue-as-new -> end.

A signal reports only that something changed, and a step reads the change from storage. Signals may therefore be lost,
repeated and reordered, and a step may be repeated and interrupted anywhere.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from workflows.attributes import STATE
    from workflows.calls import WakeTimer
    from workflows.policies import SUMMARY_MAX, Policies
    from workflows.renewal import Renewal, continue_as_new, fresh_policies


class SignalledWorkflow:
    """Base of a workflow whose input is a dataclass with ``policies``, and with ``life`` if the next run needs to know
    more: state that continue-as-new carries.
    """

    def __init__(self, input: Any) -> None:
        self.input = input
        self.policies: Policies = input.policies
        self.life: Any = getattr(input, "life", None)
        self.renewal = Renewal()
        self.wakeup_pending = False
        self.wake_timer = WakeTimer()  # the time of the next poll

    @workflow.signal
    def changed(self) -> None:
        """Note a change: of rows, by a user, or of a condition that a step waits for."""
        self.wakeup_pending = True

    @property
    def has_news(self) -> bool:
        """Return whether a signal has ended the wait."""
        return self.wakeup_pending

    async def sleep(self, timeout_s: float, waiting_for: str = "") -> None:
        """Wait for a signal until the timeout has passed; its timer ends with the wait."""
        if self.wakeup_pending:
            return
        timeout, summary = timedelta(seconds=timeout_s), look_again_text(waiting_for)
        with suppress(TimeoutError):
            await workflow.wait_condition(lambda: self.wakeup_pending, timeout=timeout, timeout_summary=summary)

    async def doze(self, timeout_s: float, waiting_for: str = "") -> None:
        """Wait as ``sleep`` does, in a workflow with many waits: its timer is kept for the next one."""
        self.wake_timer.set(timeout_s, look_again_text(waiting_for))
        await workflow.wait_condition(lambda: self.has_news or self.wake_timer.fired)

    async def is_last(self) -> bool:
        """Wait for the answers to users. Return whether no signal has arrived since the last step."""
        await workflow.wait_condition(lambda: self.wakeup_pending or workflow.all_handlers_finished())
        return not self.wakeup_pending

    def show_state(self, state: str) -> None:
        """Update the search attribute of a workflow whose ``life`` has the shown state."""
        if state != self.life.shown_state:
            self.life = replace(self.life, shown_state=state)
            workflow.upsert_search_attributes([STATE.value_set(state)])

    async def continue_as_new_when_due(self) -> None:
        if self.renewal.should_continue_as_new(self.policies):
            await self.continue_as_new()

    async def continue_as_new(self) -> None:
        policies = await fresh_policies(self.policies)
        carried = {} if self.life is None else {"life": self.life}
        await continue_as_new(replace(self.input, policies=policies, **carried))


def look_again_text(waiting_for: str) -> str:
    return f"poll: waits for {waiting_for}"[:SUMMARY_MAX] if waiting_for else "poll"
