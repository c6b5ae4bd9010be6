"""Recordings of a real Kubernetes, a line for each step.

``python -m tests.conformance.kubernetes.recording [NAME]...`` records these scenarios, or all, again.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import orjson

from tests.conformance.kubernetes.lab import Lab
from tests.conformance.kubernetes.scenarios.all import SCENARIOS, Scenario
from tests.kubernetes.client import Json, Login
from tests.kubernetes.control_plane import ControlPlane

FOLDER = Path(__file__).parent / "recordings"


def load(name: str) -> list[Json]:
    return [orjson.loads(line) for line in (FOLDER / f"{name}.jsonl").read_bytes().splitlines()]


def play(scenario: Scenario, login: Login) -> list[Json]:
    lab = Lab(login)
    try:
        scenario(lab)
    finally:
        lab.close()
    return [orjson.loads(orjson.dumps(step)) for step in lab.transcript]


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as plane:
        for name in names or SCENARIOS:
            began_s = time.monotonic()
            steps = play(SCENARIOS[name], plane.login)
            lines = [orjson.dumps(step, option=orjson.OPT_SORT_KEYS) for step in steps]
            (FOLDER / f"{name}.jsonl").write_bytes(b"\n".join([*lines, b""]))
            print(f"{name}: {len(steps)} steps in {time.monotonic() - began_s:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
