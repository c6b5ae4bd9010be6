"""Two teams lend to each other: plays the story of README.md and records the usage of their pools.

    python examples/elastic-pools/run.py                             # on a cluster of its own, which then ends
    python examples/elastic-pools/run.py --address localhost:5397    # on the cluster of a `peloton up`

It runs the commands of the story, deletes all objects that it made, and leaves two files in the folder of --out:
samples.jsonl, and the plot elastic-pools.svg if matplotlib is installed.
"""

from __future__ import annotations

import sys
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from story import Recorder, Run, folder_of, main

FOLDER = folder_of(__file__)


def play(run: Run, recorder: Recorder, cleanup: ExitStack, pause_s: float) -> None:
    def submit(team: str, file: str) -> None:
        job = str(uuid.uuid4())
        run("job", "create", f"/{team}", str(FOLDER / file), "--jobID", job)
        cleanup.callback(run, "job", "delete", job, quiet=True)
        cleanup.callback(run, "job", "stop", job, "--progress", quiet=True)

    print("         both pools are idle")
    time.sleep(pause_s / 4)

    submit("team-b", "sweep.yaml")
    recorder.event("team B submits 18 instances of one core")
    a, b = recorder.wait(lambda a, b: b["allocation"] >= b["limit"], "team B with the whole cluster")
    own = b["reservation"]
    recorder.event(f"team B holds {b['allocation']:g} cores: {own:g} of its own, {b['allocation'] - own:g} borrowed")
    time.sleep(pause_s)

    submit("team-a", "report.yaml")
    recorder.event("team A submits 12 instances of one core")
    a, b = recorder.wait(
        lambda a, b: a["allocation"] >= a["reservation"] and b["allocation"] <= b["entitlement"], "team A's share"
    )
    recorder.event(f"team B gave back: team A holds {a['allocation']:g} cores, team B {b['allocation']:g}")

    recorder.wait(lambda a, b: a["allocation"] == a["demand"] == 0, "the end of team A's job")
    recorder.event("team A is done")
    a, b = recorder.wait(lambda a, b: b["allocation"] > b["reservation"], "team B above its reservation again")
    recorder.event(f"team B holds {b['allocation']:g} cores again")
    recorder.wait(lambda a, b: b["allocation"] == b["demand"] == 0, "the end of team B's job")
    recorder.event("team B is done")


if __name__ == "__main__":
    sys.exit(main(FOLDER, (__doc__ or "").splitlines()[0], ("/team-a", "/team-b"), play))
