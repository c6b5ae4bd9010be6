"""Job in memory: its record, the facts of its configuration, and its pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from peloton.lifecycle.gang import member_of, progress_of
from peloton.lifecycle.goal import default_pod_goal
from peloton.lifecycle.guards import Condition
from peloton.lifecycle.job import is_ending
from peloton.model.job import JOB_TERMINAL, GangProgress, JobRecord
from peloton.model.pod import PodRecord, PodShape, ShapeRange
from services.storage.codec import InstanceFacts
from tests.doubles.storage.pods import MemoryPods


@dataclass
class MemoryJob:
    """Job of one configuration: ``facts`` apply to all instances except the ones in ``own``."""

    record: JobRecord
    facts: InstanceFacts
    pods: MemoryPods
    own: Mapping[int, InstanceFacts] = field(default_factory=dict)

    @property
    def has_ended(self) -> bool:
        return self.record.state in JOB_TERMINAL

    @property
    def gang_size(self) -> int:
        return self.record.gang_size

    @property
    def first_single(self) -> int:
        """Return the first instance outside the gang."""
        return self.gang_size if self.gang_size > 1 else 0

    def write(self, **changes: Any) -> None:
        """Change the record and its revision, which invalidates earlier reads."""
        self.record = replace(self.record, **changes, revision=self.record.revision + 1)

    def facts_of(self, instance: int) -> InstanceFacts:
        return self.own.get(instance, self.facts)

    def shape(self, instance: int) -> PodShape:
        return self.facts_of(instance).shape

    def shapes(self, start: int, count: int) -> list[ShapeRange]:
        """Return the shapes of ``start .. start+count-1``, with adjacent instances of one shape merged."""
        if not self.own:
            return [ShapeRange(start, count, self.facts.shape)]
        found = []
        for shape, alike in groupby(range(start, start + count), key=self.shape):
            instances = list(alike)
            found.append(ShapeRange(instances[0], len(instances), shape))
        return found

    def launch_progress(self) -> GangProgress:
        """Return the progress of the gang; size 0 for a job without a gang, or an ended one."""
        if self.has_ended or self.gang_size == 1:
            return GangProgress(0)
        members = Counter(map(member_of, self.pods.members()))
        return progress_of(self.gang_size, members, self.record.gang_requeue_count)

    def create_pods(self, start: int, count: int, now_ns: int) -> None:
        for instance in range(start, start + count):
            facts = self.facts_of(instance)
            self.pods.create(
                instance,
                now_ns,
                is_ending=is_ending(self.record),
                goal=default_pod_goal(self.record.type),
                version=self.record.config_version,
                max_failures=facts.max_failures,
                initial_health=facts.health,
            )

    def singles(self, condition: Condition, *states_of: set[int]) -> Iterator[PodRecord]:
        """Yield pods outside the gang, in the given states, that meet a condition, by instance."""
        instances = set().union(*states_of)
        return (pod for pod in self.pods.those(condition, instances) if pod.instance_id >= self.first_single)
