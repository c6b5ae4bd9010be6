"""Random lives of host pools in virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from peloton.hosts import pooled_hosts
from peloton.hosts.host_resources_table import HostResourcesTable
from peloton.lifecycle.host_pools import announce
from peloton.lifecycle.maintenance import who_leaves
from peloton.model.maintenance import HostMaintenance
from peloton.scheduling import fit
from services.hostmgr import maintenance
from tests.nightly import NIGHTLY, lives
from tests.simulation.host_pool_life import HostPoolLife
from tests.simulation.job_life import JobLife, first_fault

ACTS = {"move", "move_at_once", "change_factors", "change_workloads", "drain", "lead", "lose_host", "maintain"}


@pytest.mark.parametrize(("seed", "steps"), lives((2, 200), steps=400))
def test_a_random_life(seed: int, steps: int, template: Path, tmp_path: Path) -> None:
    """No moved host is shared by two host pools after any step, no host is filled beyond the announced capacity of its
    host pool, and exclusive hosts have only pods that request them; in the end all pods run.

    PELOTON_TEST_SEEDS=1,2,3 plays others, PELOTON_TEST_STEPS longer ones.
    """
    with HostPoolLife(seed, template, tmp_path) as life:
        life.live(steps)
        life.end()
        assert ACTS <= {name for name, count in life.done.items() if count}


# What would go wrong is noticed.


def _no_pod_leaves_moving(host: HostMaintenance, hosted_pods: Any) -> Any:
    return () if host.is_move else who_leaves(host, hosted_pods)


FAULTS: dict[str, tuple[Any, str, Any, str]] = {
    "routing": (fit, "find_unserving", lambda *_: None, "shared with"),
    "drain": (maintenance, "who_leaves", _no_pod_leaves_moving, "moved from"),
    "leases": (HostResourcesTable, "change_pool", lambda *_: None, "shared with"),
    "factors": (
        pooled_hosts,
        "compute_announced_free",
        lambda free, _, __, factors: announce(free, factors),
        "announces",
    ),
    "exclusive": (fit, "EXCLUSIVE_LABEL", "another", "exclusive h"),
}


@NIGHTLY
@pytest.mark.parametrize(("where", "name", "fault", "reported"), FAULTS.values(), ids=FAULTS.keys())
def test_a_rule_that_is_forgotten_is_noticed(
    where: Any, name: str, fault: Any, reported: str, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a few lives fails with the broken invariant, and with the seed and the step that repeat it: not every
    story exposes the fault.
    """
    monkeypatch.setattr(where, name, fault)
    monkeypatch.setattr(JobLife, "validates", False)
    noticed = first_fault(HostPoolLife, template, tmp_path, steps=1_000)
    assert reported in noticed
