"""Prefetching of the images that the next pods of a rollout need, on the hosts where the pods will run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from peloton.model.host import PREFETCH_MAX
from peloton.model.ids import Hostname
from peloton.model.pod import ON_HOST, PodState


@dataclass(frozen=True, slots=True)
class PrefetchCandidate:
    """An instance that a rollout puts in flight next."""

    state: PodState
    host: str
    desired_host: str
    image: str  # image that it runs, or will run next without the rollout
    next_image: str

    @property
    def home(self) -> Hostname:
        """The host of the next run when updated in place; empty if unknown."""
        return Hostname(self.desired_host or (self.host if self.state in ON_HOST else ""))


def to_fetch(candidates: Iterable[PrefetchCandidate], limit: int = PREFETCH_MAX) -> dict[str, list[Hostname]]:
    """Return image -> hosts in the order of the candidates, at most ``limit`` pairs. Instances that keep their image,
    or whose next host is unknown, need none."""
    found: dict[str, list[Hostname]] = {}
    known: set[tuple[str, Hostname]] = set()
    for candidate in candidates:
        wanted = (candidate.next_image, candidate.home)
        if not all(wanted) or candidate.next_image == candidate.image or wanted in known:
            continue
        if len(known) == limit:
            break
        known.add(wanted)
        found.setdefault(candidate.next_image, []).append(candidate.home)
    return found
