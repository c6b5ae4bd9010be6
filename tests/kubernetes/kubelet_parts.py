"""Fetches and builds the parts of a machine with a real kubelet, once: ``python -m tests.kubernetes.kubelet_parts``.

Programs of Debian are unpacked into a folder of their own outside the repository; none is installed. The kubelet is
built after the control plane, whose packages it shares: a minute on two idle cores. On a machine that cannot run a
kubelet the command succeeds without one; elsewhere it reports failures. Tests that need a kubelet are skipped without
it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.kubernetes import build, kubelet

NAMES = ("containerd", "runc", "containernetworking-plugins", "busybox-static")
FETCH_MAX_S = 60.0
_ROOT = "root"


class CannotFetch(Exception):
    """Raised when no archive of Debian can be reached."""


def unfit() -> str:
    """Return why this machine cannot have a kubelet, whatever is fetched and built; empty when it can."""
    lacking = [name for name in ("apt-get", "dpkg-deb") if shutil.which(name) is None]
    return kubelet.unfit() or (f"{lacking[0]} is not installed: want Debian" if lacking else "")


def fetch() -> None:
    """Fetch the programs. Raises CannotFetch."""
    target = kubelet.debian()
    if target.is_dir():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        _run(["apt-get", "download", *NAMES], Path(work))
        for package in sorted(Path(work).glob("*.deb")):
            _run(["dpkg-deb", "--extract", str(package), _ROOT], Path(work))
        if not target.is_dir():
            (Path(work) / _ROOT).rename(target)


def _run(argv: list[str], where: Path) -> None:
    try:
        done = subprocess.run(argv, cwd=where, capture_output=True, text=True, timeout=FETCH_MAX_S, check=False)
    except subprocess.TimeoutExpired:
        raise CannotFetch(f"{' '.join(argv)} takes longer than {FETCH_MAX_S:.0f} s") from None
    if done.returncode != 0:
        raise CannotFetch(f"{' '.join(argv)}: {done.stderr.strip()[-500:]}")


def main(argv: Sequence[str]) -> int:
    until_s, began_s = build.deadline_of(argv), time.monotonic()
    if why := unfit():
        print(f"no real kubelet for the tests, which skip what needs it: {why}")
        return 0
    try:
        fetch()
        build.build(build.KUBELET, until_s)
    except (CannotFetch, build.CannotBuild) as error:
        print(f"no real kubelet for the tests, which skip what needs it: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"{' '.join(error.cmd[:2])} failed:\n{build.last_lines(error.output)}", file=sys.stderr)
        return 1
    print(f"a kubelet with containerd is there after {time.monotonic() - began_s:.0f} s: {kubelet.debian()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
