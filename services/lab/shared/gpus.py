"""Gpus of emulated hosts, which a pod gets by their numbers, as isolators and device plugins grant them."""

from __future__ import annotations

from itertools import chain, count, islice

VARIABLE = "CUDA_VISIBLE_DEVICES"


class Gpus:
    """Numbers of the gpus that pods have on their hosts. A host has no more pods than it has gpus for."""

    def __init__(self) -> None:
        self._granted: dict[str, dict[str, tuple[int, ...]]] = {}

    def grant(self, host: str, owner: str, wanted: int) -> dict[str, str]:
        """Return the variable with the lowest free numbers of the host; a repeated call returns the same ones. A pod
        that asks for no gpus has no variable."""
        if wanted == 0:
            return {}
        here = self._granted.setdefault(host, {})
        if owner not in here:
            taken = set(chain.from_iterable(here.values()))
            here[owner] = tuple(islice((number for number in count() if number not in taken), wanted))
        return {VARIABLE: ",".join(map(str, here[owner]))}

    def give_back(self, host: str, owner: str) -> None:
        here = self._granted.get(host, {})
        here.pop(owner, None)
        if not here:
            self._granted.pop(host, None)
