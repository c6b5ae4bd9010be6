"""Capacity for a failover: batch uses it until the region fails over. Plays the story of README.md.

    python examples/failover-capacity/run.py                             # on a cluster of its own, which then ends
    python examples/failover-capacity/run.py --address localhost:5397    # on the cluster of a `peloton up`

It runs the commands of the story, deletes all objects that it made, and leaves two files in the folder of --out:
samples.jsonl, and the plot failover-capacity.svg if matplotlib is installed.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from story import Recorder, Run, folder_of, main

FOLDER = folder_of(__file__)
SERVICES, BATCH = POOLS = ("/services", "/batch")
CORES = 12  # of `peloton up`
FAILS_OVER, ALL_RUN = "another region fails", "all 8 pods of the service run"


def play(run: Run, recorder: Recorder, cleanup: ExitStack, pause_s: float) -> None:
    service, batch = str(uuid.uuid4()), str(uuid.uuid4())
    run("job", "stateless", "create", SERVICES, str(FOLDER / "front.yaml"), "--jobID", service, "--watch")
    cleanup.callback(run, "job", "stateless", "delete", service, quiet=True)
    cleanup.callback(run, "job", "stateless", "stop", service, "--watch", quiet=True)
    recorder.event("the service runs in 4 of the 8 cores that are reserved for it")
    time.sleep(pause_s / 4)

    run("job", "create", BATCH, str(FOLDER / "index.yaml"), "--jobID", batch)
    cleanup.callback(run, "job", "delete", batch, quiet=True)
    cleanup.callback(run, "job", "stop", batch, "--progress", quiet=True)
    _, held = recorder.wait(lambda _, batch: batch["allocation"] == 8, "batch in all idle cores")
    own = held["reservation"]
    recorder.event(f"batch holds {held['allocation']:g} cores: {own:g} of its own, {held['allocation'] - own:g} lent")
    time.sleep(pause_s)

    recorder.event(FAILS_OVER)
    run("job", "stateless", "replace", service, str(FOLDER / "front-failover.yaml"), "0", "--yes", "--watch")
    recorder.event(ALL_RUN)
    recorder.wait(lambda services, batch: services["allocation"] == 8 and batch["allocation"] == 4, "the failover")
    time.sleep(pause_s)

    run("job", "stateless", "replace", service, str(FOLDER / "front.yaml"), "0", "--yes", "--watch")
    recorder.event("the region is back, and the service runs in 4 cores again")
    recorder.wait(lambda _, batch: batch["allocation"] == 8, "batch in all idle cores again")
    recorder.event("batch holds 8 cores again")
    recorder.wait(lambda _, batch: batch["allocation"] == batch["demand"] == 0, "the end of the batch job")
    recorder.event("batch is done")


def summarize(samples: Path) -> str:
    """Compare utilisation with that of fences, over the time in which batch pods waited for cores."""
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    seconds = {line["event"]: line["second"] for line in lines if "event" in line}
    answers = [(line["second"], *(line["pools"][path] for path in POOLS)) for line in lines if has_pools(line)]
    busy_s = shared = fenced = 0.0
    for (at_s, services, batch), (next_s, *_) in pairwise(answers):
        if batch["demand"] > 0:
            busy_s += next_s - at_s
            shared += (next_s - at_s) * (services["allocation"] + batch["allocation"])
            fenced += (next_s - at_s) * (services["allocation"] + min(batch["allocation"], batch["reservation"]))
    return (
        f"every pod of the service ran {seconds[ALL_RUN] - seconds[FAILS_OVER]:.1f} s after the failover began\n"
        f"while batch pods waited for cores, {100 * shared / (busy_s * CORES):.0f} % of the cores were held; "
        f"{100 * fenced / (busy_s * CORES):.0f} % if batch could use its own {answers[0][2]['reservation']:g} only"
    )


def has_pools(line: dict) -> bool:
    return all(path in line.get("pools", {}) for path in POOLS)


if __name__ == "__main__":
    sys.exit(main(FOLDER, (__doc__ or "").splitlines()[0], POOLS, play, summarize))
