"""``make sim``: one simulated day; prints its figures, or the step at which an invariant broke."""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import SystemRandom
from typing import Any

from tests.simulation.day import ROUGH, USUAL, Day
from tests.simulation.description import Size
from tests.simulation.divided import DividedDay
from tests.simulation.figures import report

USAGE = (
    "python -m tests.simulation.run [SEED=n] [HOSTS=n] [POOLS=n] [PODS=n] [HOURS=x] [STEP_S=n] [STEPS=n] [ROUGH=1] "
    "[DIVIDED=1]"
)
SIZES: dict[str, Callable[[str], Any]] = {"HOSTS": int, "POOLS": int, "PODS": int, "HOURS": float, "STEP_S": int}


def main(arguments: list[str]) -> None:
    given = dict(argument.partition("=")[::2] for argument in arguments)
    seed, steps, rough, divided = (given.pop(name, "") for name in ("SEED", "STEPS", "ROUGH", "DIVIDED"))
    if not given.keys() <= SIZES.keys():
        sys.exit(f"usage: {USAGE}")
    size = Size(**{name.lower(): SIZES[name](value) for name, value in given.items()})
    number = int(seed) if seed else SystemRandom().randrange(10**6)
    day = (DividedDay if divided else Day)(number, size, ROUGH if rough else USUAL)
    try:
        day.run(int(steps) if steps else None)
    except AssertionError as error:
        sys.exit(f"FAILED: {error}")
    print(report(day))


if __name__ == "__main__":
    main(sys.argv[1:])
