"""Random lives of services in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from peloton.hosts.domain_counts import DomainCounts
from peloton.hosts.pod_labels import PodLabelIndex
from peloton.hosts.resource_holds import ResourceHolds
from peloton.lifecycle import rollout, sla
from peloton.model.rebalance import Goal
from peloton.model.resources import Resources
from tests.nightly import NIGHTLY, lives
from tests.simulation.job_life import JobLife
from tests.simulation.rebalanced_life import RebalancedLife
from tests.simulation.service_life import ServiceLife
from tests.simulation.spread_life import SpreadLife


@pytest.mark.parametrize(("seed", "steps"), lives((4, 200), steps=800))
def test_a_random_life(seed: int, steps: int, template: Path, tmp_path: Path) -> None:
    """Each step keeps batch, SLA, neighbours and the way home; in the end every instance runs the last configuration.

    PELOTON_TEST_SEEDS=1,2,3 plays others, PELOTON_TEST_STEPS longer ones.
    """
    with ServiceLife(seed, template, tmp_path) as life:
        life.live(steps)
        life.end()
        assert min(life.rules.taken[cause] for cause in ("update", "maintenance", "broken", "started")) > 0


@pytest.mark.parametrize(("seed", "steps"), lives((1, 100), steps=400))
def test_a_random_life_while_the_cluster_is_rebalanced(seed: int, steps: int, template: Path, tmp_path: Path) -> None:
    """No move breaks an SLA, a constraint or the return of a pod to its host; without other acts, rebalancing comes to
    rest.
    """
    with RebalancedLife(seed, template, tmp_path) as life:
        life.live(steps)
        life.end()
        for goals in ((Goal.FREE, Goal.SPREAD), (Goal.FREE, Goal.EMPTY)):
            life.rest(*goals)
            assert 0 == life.rest(*goals)
        life.rules.read(life.tale)
        assert life.rules.taken["move"] > 0


@pytest.mark.parametrize(("seed", "steps"), lives((2, 100), steps=400))
def test_a_random_life_of_services_that_spread(seed: int, steps: int, template: Path, tmp_path: Path) -> None:
    """No launch breaks a hard bound when workers or host managers die, hosts are lost, or updates are under way."""
    with SpreadLife(seed, template, tmp_path) as life:
        life.live(steps)
        life.end()
        assert min(life.died, life.spread, *(life.rules.taken[cause] for cause in ("update", "broken"))) > 0


# What would go wrong is noticed.


def _double_batch(before: Callable[..., Any]) -> Callable[..., Any]:
    def fill_up(update: Any, *given: Any) -> Any:
        return before(replace(update, spec=replace(update.spec, batch_size=2 * update.spec.batch_size)), *given)

    return fill_up


FAULTS: dict[str, tuple[type[ServiceLife], Any, str, Any, str]] = {
    "sla": (ServiceLife, sla, "grant", lambda _, missing, wanted, *__: sla.Grant(tuple(sorted(wanted))), "of at most"),
    "batch": (ServiceLife, rollout, "plan_step", _double_batch(rollout.plan_step), "for a batch of"),
    "neighbours": (ServiceLife, PodLabelIndex, "hosts_with", lambda *_: {}, "pods on host"),
    "holds": (ServiceLife, ResourceHolds, "sum_held", lambda *_: (Resources(), 0), "are left on"),
    "bound on skew": (SpreadLife, DomainCounts, "_pods", lambda *_: {}, "where another rack has"),
}


@NIGHTLY
@pytest.mark.parametrize(("kind", "where", "name", "fault", "reported"), FAULTS.values(), ids=FAULTS.keys())
def test_a_rule_that_is_forgotten_is_noticed(
    kind: type[ServiceLife],
    where: Any,
    name: str,
    fault: Any,
    reported: str,
    template: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The life fails with the broken invariant, and with the seed and the step that repeat it."""
    monkeypatch.setattr(where, name, fault)
    monkeypatch.setattr(JobLife, "validates", False)
    with kind(1, template, tmp_path) as life, pytest.raises(AssertionError, match="seed 1, step") as noticed:
        life.live(2_000)
    assert reported in str(noticed.value).splitlines()[0]
