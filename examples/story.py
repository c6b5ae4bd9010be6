"""Plays a story of two pools on a cluster, for the run.py of an example, and records the usage of its pools."""

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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PELOTON = [sys.executable, "-m", "cli.main"]
KIND = "cpu"
AMOUNTS = ("reservation", "limit", "share", "entitlement", "allocation", "demand")
SAMPLE_PERIOD = "500ms"
TIMEOUT_S = 180.0  # for any one step of a story

Pool = dict[str, float]
Run = Callable[..., None]


class StoryEnded(Exception):
    """Raised when a step of the story has an unexpected result, with the reason as its message."""


class Recorder:
    """Follows `peloton respool tree --watch --json`, and writes each answer and each event as one line of JSON."""

    def __init__(self, address: str, file: Path, paths: tuple[str, str]) -> None:
        self._paths = paths
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

    def event(self, text: str) -> float:
        """Record an event, and return its second."""
        with self._changed:
            second = self._write(event=text)
        print(f"{second:5.1f} s  {text}", flush=True)
        return second

    def wait(self, condition: Callable[[Pool, Pool], bool], what: str) -> tuple[Pool, Pool]:
        """Return both pools of the story in the first later answer for which ``condition`` is true."""
        deadline_s = time.monotonic() + TIMEOUT_S
        with self._changed:
            while not self._has_ended and self._changed.wait(max(deadline_s - time.monotonic(), 0)):
                first, second = (self._latest.get(path, {}) for path in self._paths)
                if first and second and condition(first, second):
                    return first, second
        if self._has_ended:
            raise StoryEnded(f"`peloton respool tree --watch` has ended before {what}")
        raise StoryEnded(f"{what} did not come within {TIMEOUT_S:.0f} s; the last answer was {self._latest}")


def amounts_of(pool: dict) -> Pool:
    found = next((each for each in pool["amounts"] if each["kind"] == KIND), {})
    return {name: float(found.get(name, 0)) for name in AMOUNTS}


def runner(address: str) -> Run:
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
def own_cluster(log: Path, *options: str) -> Iterator[str]:
    """Run `peloton up` on free ports and yield the address of its API."""
    with log.open("w") as output:
        command = [*PELOTON, "up", "--port", "0", *options]
        up = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        while not (ready := re.search(r"ready: API (\S+),", log.read_text())):
            if up.poll() is not None:
                raise StoryEnded(f"peloton up: {log.read_text().strip().splitlines()[-1]}")
            time.sleep(0.1)
        yield ready[1]
    finally:
        up.send_signal(signal.SIGINT)
        up.wait()


def draw(samples: Path, picture: Path, script: Path) -> None:
    try:
        import plot
    except ModuleNotFoundError as error:
        print(f"no plot, because {error.name} is not installed. To get it:")
        print(f"  {sys.executable} -m pip install matplotlib")
        print(f"  {sys.executable} {script} {samples} {picture}")
        return
    plot.draw(samples, picture)
    print(f"the plot is in {picture}")


def main(
    folder: Path,
    title: str,
    paths: tuple[str, str],
    play: Callable[[Run, Recorder, ExitStack, float], None],
    summarize: Callable[[Path], str] | None = None,
) -> int:
    """Run the story that ``play`` plays, in the pools ``paths``, and leave its results in data/, by default."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--address", metavar="HOST:PORT", help="a running `peloton up`; without it one is started")
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, default=Path("data") / folder.name, help="for the results"
    )
    parser.add_argument("--pause", metavar="SECONDS", type=float, default=10.0, help="how long a state is shown")
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
            recorder = Recorder(address, samples, paths)
            cleanup.callback(recorder.close)
            run = runner(address)
            for path in paths:
                run("respool", "create", path, str(folder / f"{path[1:]}.yaml"))
                cleanup.callback(run, "respool", "delete", path, quiet=True)
            recorder.wait(lambda first, second: True, "an answer with both pools")
            play(run, recorder, cleanup, options.pause)
    except StoryEnded as end:
        print(f"the story ended early: {end}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; everything is cleaned up", file=sys.stderr)
        return 130
    if summarize is not None:
        print(summarize(samples))
    print(f"the samples are in {samples}")
    draw(samples, options.out / f"{folder.name}.svg", folder / "plot.py")
    return 0


def folder_of(script: str) -> Path:
    """Return the folder of a script as you would type it."""
    return Path(os.path.relpath(Path(script).parent))
