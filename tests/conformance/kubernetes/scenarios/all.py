"""Every scenario by its name, which is that of its recording too."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.kubernetes.lab import Lab
from tests.conformance.kubernetes.scenarios import binding, changes, creation, deletion, policies, reading, watches

Scenario = Callable[[Lab], None]
SCENARIOS: dict[str, Scenario] = {
    scenario.__name__.replace("_", "-"): scenario
    for module in (creation, binding, deletion, changes, reading, watches, policies)
    for scenario in module.SCENARIOS
}
