"""``make bench``: run benchmark cases; each prints one JSON line. What they mean is in docs/benchmarks.md."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench import baseline, cluster, profile, resmgr, scale, scheduling
from tests.bench.aurora import aurora
from tests.bench.churn import churn, churn_paced, scale_out
from tests.bench.cost import compare_cost, cost
from tests.bench.daemons import daemon_50k
from tests.bench.deep import deep, deep_postgres
from tests.bench.drain import drain_50
from tests.bench.faults import throughput_faults
from tests.bench.figures import Missing
from tests.bench.growth import updates
from tests.bench.idle import first_launch
from tests.bench.job_table import job_table, job_table_postgres
from tests.bench.kubernetes_bind import bind
from tests.bench.kubernetes_real import kubernetes_real
from tests.bench.kueue import kueue
from tests.bench.live import live
from tests.bench.live_faults import live_faults
from tests.bench.minicluster import minicluster_updates
from tests.bench.partition import partition_spike
from tests.bench.placement import placement_mixed
from tests.bench.pods import pods
from tests.bench.prefetch import roll_prefetch
from tests.bench.pressure import pressure
from tests.bench.reads import reads
from tests.bench.rebalance import rebalance
from tests.bench.retention import retention, retention_month, retention_postgres
from tests.bench.rollout import roll_100x90, roll_9000
from tests.bench.sandbox import sandbox
from tests.bench.security import security
from tests.bench.storm import storm
from tests.bench.talk import talk
from tests.bench.temporal_postgres import churn_temporal_postgres
from tests.bench.web import web, web_paint
from tests.bench.weight import config_noise, config_weight
from tests.bench.wide import hosts, wide

CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "throughput-10k": cluster.throughput_10k,
    "kubernetes": cluster.kubernetes,
    "throughput": scale.throughput,
    "throughput-postgres": scale.throughput_postgres,
    "throughput-faults": throughput_faults,
    "job-create": scale.job_create,
    "job-create-overrides": scale.job_create_overrides,
    "config-weight": config_weight,
    "config-noise": config_noise,
    "updates": updates,
    "small-jobs": cluster.small_jobs,
    "first-launch": first_launch,
    "cost": cost,
    "security": security,
    "churn": churn,
    "churn-paced": churn_paced,
    "churn-temporal-postgres": churn_temporal_postgres,
    "scale-out": scale_out,
    "storm": storm,
    "live": live,
    "live-faults": live_faults,
    "entitlement": scheduling.entitlement,
    "admission-pass": scheduling.admission_pass,
    "placement-mixed": placement_mixed,
    "rebalance": rebalance,
    "partition-spike": partition_spike,
    "queued-million": resmgr.measure_queued_million,
    "rebuild": resmgr.rebuild,
    "resmgr-churn": resmgr.resmgr_churn,
    "many-shapes": resmgr.many_shapes,
    "pods": pods,
    "deep": deep,
    "deep-postgres": deep_postgres,
    "reads": reads,
    "job-table": job_table,
    "job-table-postgres": job_table_postgres,
    "retention": retention,
    "retention-postgres": retention_postgres,
    "retention-month": retention_month,
    "drain-50": drain_50,
    "roll-9000": roll_9000,
    "roll-100x90": roll_100x90,
    "roll-prefetch": roll_prefetch,
    "pressure": pressure,
    "sandbox": sandbox,
    "minicluster-updates": minicluster_updates,
    "daemon-50k": daemon_50k,
    "kubernetes-real": kubernetes_real,
    "bind": bind,
    "kueue": kueue,
    "talk": talk,
    "wide": wide,
    "web": web,
    "web-paint": web_paint,
    "hosts": hosts,
    "aurora": aurora,
}


COMPARE: dict[str, Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]]] = {"cost": compare_cost}
"""Cases with a comparison of their own; ``too_dear`` fails the run."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", nargs="*", choices=[[], *CASES], help="cases to run; none: all")
    parser.add_argument("--record", action="store_true", help="make what is measured the baseline")
    parser.add_argument("--profile", type=Path, metavar="DIR", help="write where each process spends its time")
    options = parser.parse_args()
    known, lines = baseline.load(), []
    for name in options.case or CASES:
        if options.profile:
            profile.into(options.profile / name)
        try:
            found = {"case": name, **baseline.circumstances(), **CASES[name]()}
        except Missing as missing:
            print(json.dumps({"case": name, "skipped": str(missing)}), flush=True)
            continue
        line = json.loads(json.dumps(found))  # names that are numbers are words in the baseline
        if name in known and not options.record:
            line |= COMPARE.get(name, baseline.compare)(line, known[name])
        print(json.dumps(line), flush=True)
        lines.append(line)
    if options.record:
        baseline.record(lines)
    return 1 if any(line.get("too_dear") for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
