"""``make bench``: run benchmark cases; each prints one JSON line. What they mean is in docs/benchmarks.md."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from tests.bench import cluster, resmgr, scale, scheduling
from tests.bench.churn import churn, churn_paced, scale_out
from tests.bench.drain import drain_50
from tests.bench.prefetch import roll_prefetch
from tests.bench.rollout import roll_100x90, roll_9000

CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "throughput-10k": cluster.throughput_10k,
    "throughput": scale.throughput,
    "throughput-postgres": scale.throughput_postgres,
    "job-create": scale.job_create,
    "job-create-overrides": scale.job_create_overrides,
    "small-jobs": cluster.small_jobs,
    "churn": churn,
    "churn-paced": churn_paced,
    "scale-out": scale_out,
    "entitlement": scheduling.entitlement,
    "admission-pass": scheduling.admission_pass,
    "queued-million": resmgr.queued_million,
    "rebuild": resmgr.rebuild,
    "resmgr-churn": resmgr.resmgr_churn,
    "many-shapes": resmgr.many_shapes,
    "drain-50": drain_50,
    "roll-9000": roll_9000,
    "roll-100x90": roll_100x90,
    "roll-prefetch": roll_prefetch,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", nargs="*", choices=[[], *CASES], help="cases to run; none: all")
    for name in parser.parse_args().case or CASES:
        print(json.dumps({"case": name, **CASES[name]()}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
