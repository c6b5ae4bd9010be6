"""Behaviour of simulated tasks: run time, resource usage, and exit code or signal."""

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
    """Behaviour of a task, which runs for ``seconds``, uses ``share`` of its requested cpu and memory, and then exits.

    It exits with ``code``, or by ``signal`` if that is not 0.
    """

    seconds: float
    code: int
    share: float = 1.0
    signal: int = 0


def behaviour(text: str, environment: Mapping[str, str], variables: str = TASK_VARIABLES) -> Behaviour:
    """Derive the behaviour of a task from its command and environment.

    The task runs for the variable NAME_SECONDS, where NAME is ``variables``, or else for the sum of all `sleep N`. It
    exits with the code of a final `exit N`, and uses the share NAME_SHARE of its requests, by default all of them.
    """
    seconds = _number(environment.get(f"{variables}_SECONDS"))
    if seconds is None:
        seconds = sum(float(found) for found in _SLEEP.findall(text))
    share = _number(environment.get(f"{variables}_SHARE"))
    found = _EXIT.search(text)
    return Behaviour(seconds, int(found.group(1)) & 255 if found else 0, 1.0 if share is None else share)


def simulate(
    of_command: Behaviour, simulation: Simulation, host: HostSpec, task_id: str, text: str, labels: Labels
) -> Behaviour:
    """Return the behaviour of a task on a host: that of its command, changed by the rules of the simulation."""
    seconds = simulation.run_s(host, task_id, text, labels, of_command.seconds)
    failure = simulation.failure(task_id, text, labels)
    if failure is None:
        return replace(of_command, seconds=seconds)
    rule, share = failure
    return Behaviour(seconds * share, rule.code, of_command.share, rule.signal)


def _number(text: str | None) -> float | None:
    """Parse a number, at least 0. Return None if it is not a number."""
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None
