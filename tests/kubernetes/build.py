"""Builds the control plane for tests, one program from Go modules: ``python -m tests.kubernetes.build``.

It is kept outside the repository by the hash of its sources, so that a machine builds it once. Where it cannot be built
this says why and succeeds: the tests that need it are skipped then. The kubelet is a second program of the same module
(``kubelet_parts``).
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

SOURCES = Path(__file__).parent / "parts"
PLANE, KUBELET = "kube", "kubelet"
_PACKAGES = {PLANE: ".", KUBELET: "./kubelet"}
BUILD_MAX_S = 600.0
"""Two idle cores take five minutes. What was compiled until then is kept by Go: the next build goes on from there."""
NICENESS = 15
OUTPUT_LINES_SHOWN = 20
_PR_SET_PDEATHSIG = 1


class CannotBuild(Exception):
    """The machine lacks what a build needs; nothing is wrong with the sources."""


def cache() -> Path:
    """What is kept on this machine for tests with a real Kubernetes."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "peloton" / "kubernetes"


def program(name: str = PLANE) -> Path:
    """Where the program of these sources is, once it is built."""
    digest = hashlib.sha256()
    for source in ("go.mod", "go.sum", f"{_PACKAGES[name]}/main.go"):
        digest.update((SOURCES / source).read_bytes())
    return cache() / digest.hexdigest()[:16] / name


def is_built(name: str = PLANE) -> bool:
    return program(name).is_file()


def kubernetes_version() -> str:
    found = re.search(r"k8s\.io/kubernetes (v[\d.]+)", (SOURCES / "go.mod").read_text(encoding="utf-8"))
    assert found is not None, "go.mod requires no k8s.io/kubernetes"
    return found[1]


def build(name: str = PLANE, max_s: float = BUILD_MAX_S) -> None:
    """Raises CannotBuild, or CalledProcessError when the sources are wrong."""
    go = shutil.which("go")
    if go is None:
        raise CannotBuild("Go is not installed (https://go.dev, 1.26 or later)")
    target, package = program(name), _PACKAGES[name]
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel unlocks it with this process
        if target.is_file():
            return
        until_s = time.monotonic() + max_s
        try:
            _run([go, "list", "-deps", "-f", "{{with .Error}}{{.}}{{end}}", package], until_s)
        except subprocess.CalledProcessError as error:
            raise CannotBuild(f"its modules cannot be fetched:\n{last_lines(error.output)}") from None
        built = target.with_suffix(".new")
        version = kubernetes_version()
        major, minor, _ = version.removeprefix("v").split(".")
        values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
        flags = " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{k}={v}" for k, v in values.items())])
        _run(
            [go, "build", "-p", str(os.cpu_count() or 1), "-trimpath", "-ldflags", flags, "-o", str(built), package],
            until_s,
        )
        built.replace(target)


def _run(argv: list[str], until_s: float) -> None:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly"}
    process = subprocess.Popen(
        argv,
        cwd=SOURCES,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # its compilers end with it
        preexec_fn=_gently,
    )
    try:
        output, _ = process.communicate(timeout=max(until_s - time.monotonic(), 1.0))
    except subprocess.TimeoutExpired:
        raise CannotBuild("it takes too long; the next build goes on from here") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, argv, output)


def _gently() -> None:
    """In the child: others go first, and it ends when we are killed."""
    os.nice(NICENESS)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def last_lines(output: str) -> str:
    return "\n".join(output.splitlines()[-OUTPUT_LINES_SHOWN:])


def main() -> int:
    began_s = time.monotonic()
    if is_built():
        print(f"Kubernetes {kubernetes_version()} is built: {program()}")
        return 0
    print(
        f"building Kubernetes {kubernetes_version()} for the tests, at most {BUILD_MAX_S / 60:.0f} minutes ...",
        flush=True,
    )
    try:
        build()
    except CannotBuild as error:
        print(f"no real Kubernetes for the tests, which skip what needs it: {error}")
        return 0
    except subprocess.CalledProcessError as error:
        print(f"{' '.join(error.cmd[:2])} failed:\n{last_lines(error.output)}", file=sys.stderr)
        return 1
    print(f"built in {time.monotonic() - began_s:.0f} s: {program()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
