"""Two teams lend to each other: plays the story of README.md and records the usage of their pools.

    python examples/elastic-pools/run.py                             # on a cluster of its own, which then ends
    python examples/elastic-pools/run.py --address localhost:5397    # on the cluster of a `peloton up`

It runs the commands of the story, deletes all objects that it made, and leaves two files in the folder of --out:
samples.jsonl, and the plot elastic-pools.svg if matplotlib is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

FOLDER = Path(os.path.relpath(Path(__file__).parent))  # as you would type it
PELOTON = [sys.executable, "-m", "cli.main"]
KIND = "cpu"
AMOUNTS = ("reservation", "limit", "share", "entitlement", "allocation", "demand")
SAMPLE_PERIOD = "500ms"
TIMEOUT_S = 180.0  # for any one step of the story

Pool = dict[str, float]


class StoryEnded(Exception):
    """Raised when a step of the story has an unexpected result, with the reason as its message."""


class Recorder:
    """Follows `peloton respool tree --watch --json`, and writes each answer and each event as one line of JSON."""

    def __init__(self, address: str, file: Path) -> None:
        self._started_s = time.monotonic()
        self._out = file.open("w")
        self._changed = threading.Condition()
        self._latest: dict[str, Pool] = {}
        self._has_ended = False
        command = [*PELOTON, "--json", "--address", address, "respool", "tree", "--watch", "--every", SAMPLE_PERIOD]
        self._tree = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def close(self) -> None:
        self._tree.kill()
        self._tree.wait()
        self._reader.join()
        self._out.close()

    def _read(self) -> None:
        assert self._tree.stdout is not None
        for line in self._tree.stdout:
            pools = {pool["path"]: amounts_of(pool) for pool in json.loads(line)["pools"]}
            with self._changed:
                self._latest = pools
                self._write(pools=pools)
                self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def _write(self, **line: object) -> float:
        second = round(time.monotonic() - self._started_s, 1)
        print(json.dumps({"second": second, **line}), file=self._out, flush=True)
        return second

    def event(self, text: str) -> None:
        with self._changed:
            second = self._write(event=text)
        print(f"{second:5.1f} s  {text}", flush=True)

    def wait(self, condition: Callable[[Pool, Pool], bool], what: str) -> tuple[Pool, Pool]:
        """Return the pools of team A and team B in the first later answer for which ``condition`` is true."""
        deadline_s = time.monotonic() + TIMEOUT_S
        with self._changed:
            while not self._has_ended and self._changed.wait(max(deadline_s - time.monotonic(), 0)):
                pair = self._latest.get("/team-a", {}), self._latest.get("/team-b", {})
                if all(pair) and condition(*pair):
                    return pair
        if self._has_ended:
            raise StoryEnded(f"`peloton respool tree --watch` has ended before {what}")
        raise StoryEnded(f"{what} did not come within {TIMEOUT_S:.0f} s; the last answer was {self._latest}")


def amounts_of(pool: dict) -> Pool:
    found = next((each for each in pool["amounts"] if each["kind"] == KIND), {})
    return {name: float(found.get(name, 0)) for name in AMOUNTS}


def story(run: Callable[..., None], recorder: Recorder, cleanup: ExitStack, pause_s: float) -> None:
    def submit(team: str, file: str) -> None:
        job = str(uuid.uuid4())
        run("job", "create", f"/{team}", str(FOLDER / file), "--jobID", job)
        cleanup.callback(run, "job", "delete", job, quiet=True)
        cleanup.callback(run, "job", "stop", job, "--progress", quiet=True)

    for team in ("team-a", "team-b"):
        run("respool", "create", f"/{team}", str(FOLDER / f"{team}.yaml"))
        cleanup.callback(run, "respool", "delete", f"/{team}", quiet=True)
    recorder.wait(lambda a, b: True, "an answer with both pools")
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


def runner(address: str) -> Callable[..., None]:
    def run(*arguments: str, quiet: bool = False) -> None:
        """Run one command of the CLI. A quiet one cleans up, and may fail."""
        if not quiet:
            print("$ peloton", *arguments, flush=True)
        command = [*PELOTON, "--address", address, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
        if done.returncode and not quiet:
            raise StoryEnded(f"peloton {' '.join(arguments[:3])}: {done.stderr.strip()}")

    return run


@contextmanager
def own_cluster(log: Path) -> Iterator[str]:
    """A `peloton up` on free ports, which ends when this is left; yields the address of its API."""
    with log.open("w") as output:
        up = subprocess.Popen([*PELOTON, "up", "--port", "0"], stdout=output, stderr=output, start_new_session=True)
    try:
        while not (ready := re.search(r"ready: API (\S+),", log.read_text())):
            if up.poll() is not None:
                raise StoryEnded(f"peloton up: {log.read_text().strip().splitlines()[-1]}")
            time.sleep(0.1)
        yield ready[1]
    finally:
        up.send_signal(signal.SIGINT)
        up.wait()


def draw(samples: Path, picture: Path) -> None:
    try:
        import plot
    except ModuleNotFoundError as error:
        print(f"no plot, because {error.name} is not installed. To get it:")
        print(f"  {sys.executable} -m pip install matplotlib")
        print(f"  {sys.executable} {Path(__file__).with_name('plot.py')} {samples} {picture}")
        return
    plot.draw(samples, picture)
    print(f"the plot is in {picture}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--address", metavar="HOST:PORT", help="a running `peloton up`; without it one is started")
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, default=Path("data/elastic-pools"), help="for the results"
    )
    parser.add_argument("--pause", metavar="SECONDS", type=float, default=10.0, help="how long team B has it all")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options.out.mkdir(parents=True, exist_ok=True)
    samples = options.out / "samples.jsonl"
    try:
        with ExitStack() as cleanup:
            address = options.address
            if not address:
                print("starting a cluster ...", flush=True)
                address = cleanup.enter_context(own_cluster(options.out / "up.log"))
            recorder = Recorder(address, samples)
            cleanup.callback(recorder.close)
            story(runner(address), recorder, cleanup, options.pause)
    except StoryEnded as end:
        print(f"the story ended early: {end}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; everything is cleaned up", file=sys.stderr)
        return 130
    print(f"the samples are in {samples}")
    draw(samples, options.out / "elastic-pools.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
