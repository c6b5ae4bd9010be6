"""A service whose update is rolled out, and the step of its workflow on it. Decisions are made by
``peloton.lifecycle``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from peloton.lifecycle import rollout, sla, stall
from peloton.lifecycle.images import PrefetchCandidate, to_fetch
from peloton.lifecycle.rollout_pods import AtHand
from peloton.model.ids import Hostname, JobId
from peloton.model.pod import HealthState, PodRecord, PodState
from peloton.model.update import UpdateProgress, UpdateRecord, UpdateSpec, UpdateState, UpdateType
from tests.workflow.cluster import Clock


class RolledService:
    """Running instances of a service; each one that a step changes waits for its end, is unavailable for ``away_s``,
    and then runs its new version.
    """

    def __init__(
        self, clock: Clock, job_id: JobId, instances: int, *, away_s: float = 2.0, sla_maximum: int = 0
    ) -> None:
        self.clock, self.job_id = clock, job_id
        self.away_s, self.sla_maximum = away_s, sla_maximum
        self.lock = threading.RLock()
        self.notify: Callable[[], None] = lambda: None
        self.on_end: Callable[[], None] = lambda: None  # done once, right after the step that ends an update
        self.update: UpdateRecord | None = None
        self.update_count = 0
        self.acts = 0  # acts of users
        self.broken_versions: set[int] = set()  # versions whose pods fail
        self.images: dict[int, str] = {}  # by version; "" for others
        self.ending: dict[int, int] = {}  # instance -> the version it is brought to: its host is not notified yet
        self.reads_ns: list[int] = []
        self.away_most = 0
        self.was_stalled = False
        running = PodRecord(
            job_id, 0, 1, PodState.RUNNING, PodState.RUNNING, 1, 1, desired_run_id=1, health=HealthState.DISABLED
        )
        self.pods = {i: replace(running, instance_id=i, host=f"host{i}") for i in range(instances)}

    # Acts of users and hosts.

    def roll_out(self, batch_size: int = 0, instances: Iterable[int] = (), **spec: Any) -> None:
        """Roll out to these instances, or to all. A newer update ends the older one."""
        with self.lock:
            self.update_count += 1
            self.acts += 1
            self.update = UpdateRecord(
                f"update{self.update_count}",
                self.job_id,
                UpdateType.UPDATE,
                UpdateSpec(batch_size, **spec),
                UpdateState.INITIALIZED,
                config_version=self.newest + 1,
                prev_config_version=self.newest,
                updated=frozenset(instances or self.pods),
            )
        self.notify()

    def steer(self, act: Callable[[UpdateRecord], UpdateRecord]) -> None:
        with self.lock:
            assert self.update is not None
            self.update = act(self.update)
            self.acts += 1
        self.notify()

    def pulse(self, now_ns: int) -> None:
        """Wake each workflow that waits for a pulse, as the api does."""
        with self.lock:
            assert self.update is not None
            self.update = rollout.pulse(self.update, now_ns)
        if self.update.awaits_pulse:
            self.notify()

    def lose(self, instance: int) -> None:
        self.pods[instance] = replace(self.pods[instance], state=PodState.LOST)

    def is_unavailable(self, version: int) -> bool:
        """Return whether an instance that is brought to this version is ending."""
        return any(
            pod.desired_config_version == version != pod.config_version and instance not in self.ending
            for instance, pod in self.pods.items()
        )

    def find(self, instance: int) -> None:
        """Make a lost instance available again, without a wake-up of the workflow."""
        self.pods[instance] = replace(self.pods[instance], state=PodState.RUNNING)

    @property
    def newest(self) -> int:
        return max(self.update.config_version if self.update else 1, *(p.config_version for p in self.pods.values()))

    @property
    def versions(self) -> list[int]:
        return [pod.config_version for _, pod in sorted(self.pods.items())]

    def read_shown(self) -> dict[str, Any]:
        """Return the result of a settle about the update."""
        with self.lock:
            if self.update is None or not self.update.is_active:
                return {}
            moves = rollout.may_move(self.update, AtHand(self.pods).count, self.sla_maximum, self.clock.now_ns())
            return {"update_id": self.update.update_id, "update_version": self.acts, "update_moves": moves}

    def is_over(self, update_id: str) -> bool:
        with self.lock:
            update = self.update
            return update is not None and update.update_id == update_id and not update.is_active

    # ports.JobRecords

    def advance(self, now_ns: int) -> UpdateProgress:
        with self.lock:
            self.reads_ns.append(now_ns)
            if self.update is None:
                return UpdateProgress()
            before, was_active = self.update, self.update.is_active
            step = rollout.next_step(before, self.pods, self.sla_maximum, now_ns)
            self.update = self._evaluate(before, step.update, now_ns)
            self.was_stalled |= bool(self.update.stalled_ns)
            image_count = sum(map(len, self.coming_images().values()))
            answer = rollout.progress_of(self.update, step, image_count, now_ns)
            for i in step.change:
                self._change(i, step.update.config_version)
            self.away_most = max(self.away_most, len(sla.missing_of(self.pods)))
            if was_active and answer.is_finished:
                notify, self.on_end = self.on_end, lambda: None
                notify()
            return answer

    def roll_back_failed(self, now_ns: int) -> None:
        with self.lock:
            assert self.update is not None
            step = rollout.next_step(self.update, self.pods, self.sla_maximum, now_ns)
            if step.rolls_back:
                self.update = self._turn_back(step.update)

    def _evaluate(self, before: UpdateRecord, after: UpdateRecord, now_ns: int) -> UpdateRecord:
        evaluated = stall.evaluate_progress(before, after, now_ns)
        worst = max((self.pods[i] for i in evaluated.current), key=lambda pod: pod.failure_count, default=None)
        return (
            replace(evaluated, stall_cause=stall.cause_text(evaluated, worst, None))
            if evaluated.stalled_ns
            else evaluated
        )

    def coming_images(self) -> dict[str, list[Hostname]]:
        with self.lock:
            update = self.update
            coming = () if update is None else rollout.coming_back(update, self.pods)
            pods = [self.pods[i] for i in coming]
            next_image = self.images.get(update.config_version, "") if update is not None else ""
            return to_fetch(
                PrefetchCandidate(p.state, p.host, "", self.images.get(p.config_version, ""), next_image) for p in pods
            )

    def _turn_back(self, update: UpdateRecord) -> UpdateRecord:
        version = update.config_version + 1
        touched = frozenset(i for i, pod in self.pods.items() if pod.desired_config_version == update.config_version)
        return rollout.reverse(update, version, rollout.Difference(updated=touched))

    def _change(self, instance: int, version: int) -> None:
        pod = self.pods[instance]
        self.pods[instance] = replace(pod, desired_config_version=version, desired_run_id=pod.run_id + 1)
        self.ending[instance] = version

    def kill(self) -> int:
        """End the pods that wait for it; return their number."""
        with self.lock:
            told, self.ending = self.ending, {}
            for instance, version in told.items():
                self.clock.after(self.away_s, partial(self._came_back, instance, version))
            return len(told)

    def _came_back(self, instance: int, version: int) -> None:
        with self.lock:
            pod = self.pods[instance]
            if pod.desired_config_version != version:
                return
            fails = version in self.broken_versions
            self.pods[instance] = replace(
                pod,
                run_id=pod.desired_run_id,
                config_version=version,
                state=PodState.FAILED if fails else PodState.RUNNING,
                failure_count=int(fails),
            )
        self.notify()
