"""The behaviour of a simulated task: its run time, its use of resources and its end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from services.lab.shared.hosts import HostSpec
from services.lab.shared.simulation.outcomes import Labels, Simulation

TASK_VARIABLES = "SIMULATE"
_SLEEP = re.compile(r"\bsleep\s+(\d+(?:\.\d+)?)")
_EXIT = re.compile(r"\bexit\s+(\d+)\s*;?\s*$")


@dataclass(slots=True)
class Behaviour:
    """The behaviour of a task: it runs for `seconds` on this `share` of its cpu and memory, then exits.

    It exits with `code`, or by `signal` if that is not 0.
    """

    seconds: float
    code: int
    share: float = 1.0
    signal: int = 0


def behaviour(text: str, environment: Mapping[str, str], variables: str = TASK_VARIABLES) -> Behaviour:
    """Return the behaviour of a command.

    It runs for NAME_SECONDS of its environment, NAME being ``variables``, otherwise for the sum of all `sleep N`. It
    ends with the code of a final `exit N`, and uses the share NAME_SHARE of its request, otherwise all of it.
    """
    seconds = _number(environment.get(f"{variables}_SECONDS"))
    if seconds is None:
        seconds = sum(float(found) for found in _SLEEP.findall(text))
    share = _number(environment.get(f"{variables}_SHARE"))
    found = _EXIT.search(text)
    return Behaviour(seconds, int(found.group(1)) & 255 if found else 0, 1.0 if share is None else share)


def simulate(
    said: Behaviour, simulation: Simulation, host: HostSpec, task_id: str, text: str, labels: Labels
) -> Behaviour:
    """Return the behaviour of a task on a host: its command's (``said``), changed by the rules of the simulation."""
    seconds = simulation.run_s(host, task_id, text, labels, said.seconds)
    failure = simulation.failure(task_id, text, labels)
    if failure is None:
        return replace(said, seconds=seconds)
    rule, share = failure
    return Behaviour(seconds * share, rule.code, said.share, rule.signal)


def _number(text: str | None) -> float | None:
    """Parse a number of at least 0; None if it is not a number."""
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None
