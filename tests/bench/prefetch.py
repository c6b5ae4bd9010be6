"""A rollout in place whose image takes time to pull, with prefetched images and without."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

from services.lab.local.cluster import LocalSettings
from tests.bench.cluster import Cluster
from tests.e2e.service import Service

HOSTS, BATCH, DOWNLOAD_S = 20, 2, 5.0
TIMEOUT_S = 600.0


def roll_prefetch() -> dict[str, Any]:
    """20 instances on 20 simulated hosts, replaced in place two at a time; an image takes 5 s to come."""
    with_s, ahead = _roll_out({})
    without_s, alone = _roll_out({"PELOTON_PREFETCH_URL": ""})
    return {
        "instances": HOSTS,
        "batch": BATCH,
        "download_seconds": DOWNLOAD_S,
        "seconds": round(with_s, 2),
        "seconds_without": round(without_s, 2),
        "ratio": round(with_s / without_s, 3),
        **{f"images_{name}": count for name, count in ahead.items()},
        **{f"images_{name}_without": count for name, count in alone.items()},
    }


def _roll_out(environment: dict[str, str]) -> tuple[float, dict[str, int]]:
    """Return the seconds, and the figures of pods of the new version."""
    settings = LocalSettings(port=0, simulate=HOSTS, image_download_s=DOWNLOAD_S, environment=environment)
    with Cluster(settings) as cluster:
        service = Service(cluster, cluster.pool("bench"), HOSTS, "sleep 100000", image="web:1").create()
        service.wait(lambda: service.update_state == "SUCCEEDED", "the service", TIMEOUT_S)
        started_s, before = time.monotonic(), _counts(cluster)
        service.replace(image="web:2", batch_size=BATCH, in_place=True)
        service.wait(lambda: service.update_state == "SUCCEEDED", "the rollout", TIMEOUT_S)
        seconds, after = time.monotonic() - started_s, _counts(cluster)
        return seconds, {name: after[name] - before[name] for name in ("hits", "joined", "misses")}


def _counts(cluster: Cluster) -> dict[str, int]:
    with urllib.request.urlopen(f"http://{cluster.local.mesos}/minicluster/images", timeout=10) as answer:
        return dict(json.load(answer)["counts"])
