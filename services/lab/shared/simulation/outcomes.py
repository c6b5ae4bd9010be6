"""Run times, failures and downloads on simulated hosts: pure functions of the seed and of names.

A draw depends on the name of a host, the id of a task (job, instance and run), or the names of an image and its host.
Another run with the same seed and names has the same outcome, in any order of events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from services.lab.shared.hosts import HostSpec, make_simulated_hosts
from services.lab.shared.simulation.distributions import ONE, Distribution, unit

Labels = Mapping[str, str]

HOST_UP_MIN_S = 1.0


@dataclass(frozen=True, slots=True)
class HostFailures:
    """The repeated failures of a host: `every_s` after it came up, for `repair_s`."""

    every_s: Distribution
    repair_s: Distribution
    # True: only its agent stops, and its tasks continue to run.
    keeps_tasks: bool = False


@dataclass(frozen=True, slots=True)
class HostClass:
    """A class of equal hosts: `count` of them, or their `share` of the hosts that the counts leave."""

    name: str
    spec: HostSpec
    count: int | None = None
    share: float = 1.0
    # Host n has the n-th value of each; after the last one the first follows again.
    attributes: tuple[tuple[str, tuple[str | float, ...]], ...] = ()
    slow: Distribution = ONE
    bandwidth_mb_s: float | None = None
    failures: HostFailures | None = None


@dataclass(frozen=True, slots=True)
class When:
    """The condition of a rule: a task has all these labels, and this text in its command."""

    labels: tuple[tuple[str, str], ...] = ()
    command: str = ""

    def holds(self, command: str, labels: Labels) -> bool:
        return self.command in command and all(labels.get(key) == value for key, value in self.labels)


@dataclass(frozen=True, slots=True)
class RunTime:
    """A rule for run times: `seconds` replace the time of the command, and `times` multiplies them."""

    when: When = When()
    seconds: Distribution | None = None
    times: Distribution = ONE


@dataclass(frozen=True, slots=True)
class Failure:
    """A rule for failures: a task exits with `code`, or by `signal` if that is not 0, `at` a share of its run time."""

    when: When = When()
    probability: float = 0.0
    code: int = 1
    signal: int = 0
    at: Distribution = ONE


@dataclass(frozen=True, slots=True)
class ImageRule:
    """A rule for images whose name contains this text: a download takes `seconds`, or `size_mb` over the host's
    bandwidth."""

    image: str = ""
    seconds: Distribution | None = None
    size_mb: Distribution | None = None
    bandwidth_mb_s: float = 0.0
    jitter: Distribution = ONE


@dataclass(frozen=True)
class Simulation:
    """A simulation. In each list of rules the first one that fits decides; one without rules changes nothing."""

    seed: int = 0
    hosts: tuple[HostClass, ...] = ()
    run_times: tuple[RunTime, ...] = ()
    failures: tuple[Failure, ...] = ()
    images: tuple[ImageRule, ...] = ()
    classes: Mapping[str, HostClass] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", {row.name: row for row in self.hosts})

    @property
    def has_task_rules(self) -> bool:
        return bool(self.run_times or self.failures)

    def make_hosts(self, count: int, prefix: str = "") -> tuple[HostSpec, ...]:
        """Return ``count`` hosts, class by class. Raises ValueError when the classes name more or fewer."""
        if not self.hosts:
            return make_simulated_hosts(count, prefix)
        names = iter(make_simulated_hosts(count, prefix))
        found: list[HostSpec] = []
        for row, size in zip(self.hosts, class_sizes(self.hosts, count), strict=True):
            turns: dict[tuple[int, ...], Labels | Mapping[str, str | float]] = {}
            for number, named in enumerate(islice(names, size)):
                turn = tuple(number % len(values) for _, values in row.attributes)
                # Hosts with the same attributes share one dict: there may be many of them.
                values_of_turn = turns.setdefault(
                    turn, {key: values[at] for (key, values), at in zip(row.attributes, turn, strict=True)}
                )
                found.append(replace(row.spec, name=named.name, attributes=values_of_turn, group=row.name))
        return tuple(found)

    def steady_count(self, count: int) -> int:
        """Count the hosts among ``count`` that never fail."""
        if not self.hosts:
            return count
        sizes = class_sizes(self.hosts, count)
        return sum(size for row, size in zip(self.hosts, sizes, strict=True) if row.failures is None)

    def slow(self, host: HostSpec) -> float:
        row = self.classes.get(host.group)
        return 1.0 if row is None else self._draw(row.slow, "slow", host.name)

    def run_s(self, host: HostSpec, task_id: str, command: str, labels: Labels, said_s: float) -> float:
        """Return the run time of a task whose command runs for ``said_s``."""
        for rule in self.run_times:
            if rule.when.holds(command, labels):
                if rule.seconds is not None:
                    said_s = self._draw(rule.seconds, "seconds", task_id)
                said_s *= self._draw(rule.times, "times", task_id)
                break
        return said_s * self.slow(host)

    def failure(self, task_id: str, command: str, labels: Labels) -> tuple[Failure, float] | None:
        """Return the failure of a task and its share of the run time; None: it ends as its command does."""
        for rule in self.failures:
            if rule.when.holds(command, labels):
                if unit(self.seed, "fails", task_id) < rule.probability:
                    return rule, self._draw(rule.at, "at", task_id)
                return None
        return None

    def download_s(self, host: HostSpec, image: str, usual_s: float) -> float:
        """Return the download time, ``usual_s`` if no rule fits. An image has one size, whatever the host."""
        for rule in self.images:
            if rule.image in image:
                if rule.size_mb is not None:
                    row = self.classes.get(host.group)
                    own = row.bandwidth_mb_s if row is not None else None
                    usual_s = self._draw(rule.size_mb, "size", image) / (own or rule.bandwidth_mb_s)
                elif rule.seconds is not None:
                    usual_s = self._draw(rule.seconds, "download", host.name, image)
                usual_s *= self._draw(rule.jitter, "jitter", host.name, image)
                break
        return usual_s * self.slow(host)

    def host_failures(self, host: HostSpec) -> HostFailures | None:
        row = self.classes.get(host.group)
        return None if row is None else row.failures

    def up_s(self, host: HostSpec, failures: HostFailures, number: int) -> float:
        """Return how long the host is up before its failure of this number, from 0."""
        return max(self._draw(failures.every_s, "up", host.name, number), HOST_UP_MIN_S)

    def repair_s(self, host: HostSpec, failures: HostFailures, number: int) -> float:
        return self._draw(failures.repair_s, "repair", host.name, number)

    def _draw(self, distribution: Distribution, *name: object) -> float:
        if distribution.least == distribution.most:
            return distribution.least
        return distribution.at(unit(self.seed, *name))


def class_sizes(classes: Sequence[HostClass], count: int) -> list[int]:
    """Return the size of each class: counts as given, the rest by shares, the largest remainders first.

    Raises ValueError when the counts do not add up.
    """
    counted = sum(row.count or 0 for row in classes)
    if counted > count:
        raise ValueError(f"hosts: the counts add up to {counted}, more than the {count} simulated hosts")
    shares = [row.share if row.count is None else 0.0 for row in classes]
    total, rest = sum(shares), count - counted
    if not total:
        if rest:
            raise ValueError(
                f"hosts: the counts add up to {counted} of {count} simulated hosts, and no class has a share"
            )
        return [row.count or 0 for row in classes]
    exact = [rest * share / total for share in shares]
    sizes = [int(value) for value in exact]
    by_remainder = sorted(range(len(classes)), key=lambda index: (sizes[index] - exact[index], index))
    for index in by_remainder[: rest - sum(sizes)]:
        sizes[index] += 1
    return [size if row.count is None else row.count for row, size in zip(classes, sizes, strict=True)]
