"""The cost of security and of telemetry: CPU and rate of small jobs and of pods with them, and without, in turn.

Three clusters stand next to each other, and do the same work one after the other, round by round: first with all off,
then secured, then observed, and in the next round in the opposite order. Only rounds of the same run are compared, pair
by pair, so that other load on the machine makes both sides dearer.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from peloton.client.credentials import TOKEN_FILE
from services.lab.local.cluster import LocalSettings
from services.storage.storage import Storage
from tests.bench.cluster import Cluster
from tests.bench.cost import WARM_UP_JOBS, Guard
from tests.bench.otlp import run_collector
from tests.e2e.people import ADMIN, register

OFF, SECURED, OBSERVED = "off", "secured", "observed"
LIMITS = {SECURED: 1.05, OBSERVED: 1.03}
"""Greatest CPU by that of ``off``."""
USER, POOL = "mia", "bench"
ROUNDS = 4
EXPORT_MS, TRACE_RATIO = 15_000, 0.01
"""Period of exports of metrics, as scrapes have it, and share of calls that are traced."""


@dataclass(frozen=True)
class Variant:
    """A cluster's settings, and the variables of its clients: of the administrator, and of the user of jobs."""

    settings: LocalSettings
    admin: Mapping[str, str] = field(default_factory=dict)
    user: Mapping[str, str] = field(default_factory=dict)


def security(jobs: int = 200, pods: int = 10_000, rounds: int = ROUNDS, hosts: int = 100) -> dict[str, Any]:
    """Measure small jobs as ``churn`` has them, and pods as ``throughput`` has them, in each of the clusters."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        stack.enter_context(mock.patch.dict(os.environ, {"XDG_CONFIG_HOME": str(folder / "configurations")}))
        variants = describe_variants(folder, hosts, stack)
        guards = {name: stack.enter_context(open_guard(variant)) for name, variant in variants.items()}
        found: dict[str, list[dict[str, dict[str, Any]]]] = {"per_job": [], "per_pod": []}
        for number in range(rounds):
            for unit, lines in found.items():
                line = {}
                for name in list(variants)[:: -1 if number % 2 else 1]:
                    with mock.patch.dict(os.environ, variants[name].user):
                        guard = guards[name]
                        count = jobs if unit == "per_job" else pods
                        line[name] = guard.measure(guard.run_jobs if unit == "per_job" else guard.run_pods, count)
                lines.append(line)
    units = {unit: sum_up(lines) for unit, lines in found.items()}
    return {
        "hosts": hosts,
        "jobs": jobs,
        "pods": pods,
        "rounds": rounds,
        **units,
        "limits": LIMITS,
        "too_dear": [
            f"{unit} {name}"
            for unit, one in units.items()
            for name, limit in LIMITS.items()
            if one["cpu_ratio"][name] > limit
        ],
    }


def describe_variants(folder: Path, hosts: int, stack: ExitStack) -> dict[str, Variant]:
    """Return the clusters by name. Secured: TLS with certificates of clients, tokens, roles, and the audit log."""
    people = register(folder, {USER: {f"/{POOL}": "submitter"}})
    _, observed = stack.enter_context(run_collector())
    observed |= {
        "OTEL_METRIC_EXPORT_INTERVAL": str(EXPORT_MS),
        "PELOTON_TRACE_RATIO": str(TRACE_RATIO),
        "PELOTON_LOG_FORMAT": "json",
    }
    audited = {**people.environment, "PELOTON_AUDIT": "on"}
    return {
        OFF: Variant(LocalSettings(port=0, simulate=hosts)),
        SECURED: Variant(
            LocalSettings(port=0, simulate=hosts, secure=True, environment=audited),
            {TOKEN_FILE: str(people.file_of(ADMIN))},
            {TOKEN_FILE: str(people.file_of(USER))},
        ),
        OBSERVED: Variant(LocalSettings(port=0, simulate=hosts, environment=observed)),
    }


@contextmanager
def open_guard(variant: Variant) -> Iterator[Guard]:
    """Run a cluster that has done some work; its pool is made by the administrator."""
    with ExitStack() as stack:
        with mock.patch.dict(os.environ, variant.admin):
            cluster = stack.enter_context(Cluster(variant.settings))
            storage = Storage(cluster.local.database)
            stack.callback(storage.close)
            guard = Guard(cluster, storage)
        with mock.patch.dict(os.environ, variant.user):
            guard.run_jobs(WARM_UP_JOBS)
        yield guard


def sum_up(rounds: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return medians of each cluster over the rounds, and of ratios to ``off`` within a round, with all ratios."""
    names = list(rounds[0])
    ratios = {name: [round(one[name]["sum_ms"] / one[OFF]["sum_ms"], 3) for one in rounds] for name in LIMITS}
    return {
        "cpu_ms": {name: round(statistics.median(one[name]["sum_ms"] for one in rounds), 3) for name in names},
        "cpu_ratio": {name: round(statistics.median(some), 3) for name, some in ratios.items()},
        "cpu_ratios": ratios,
        "cheapest_ratio": {
            name: round(min(one[name]["sum_ms"] for one in rounds) / min(one[OFF]["sum_ms"] for one in rounds), 3)
            for name in LIMITS
        },
        "cpu_ms_by_process": {
            name: {
                part: round(statistics.median(one[name]["cpu_ms"][part] for one in rounds), 3)
                for part in rounds[0][name]["cpu_ms"]
            }
            for name in names
        },
        "per_second": {name: round(statistics.median(one[name]["per_second"] for one in rounds), 1) for name in names},
    }
