"""Preemption: of gangs that borrow, the latest in the queue is evicted first, whatever its priority."""

from peloton.scheduling.eviction import DEFAULT_POLICY, POLICIES, HeldRun, PriorityFifo


class NewestFirst(PriorityFifo):
    def order(self, held: HeldRun) -> tuple[int, ...]:
        return (not held.run.revocable, held.is_launched, -held.run.queue_seq, -held.run.start)


def register() -> None:
    POLICIES[DEFAULT_POLICY] = NewestFirst()
