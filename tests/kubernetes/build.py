"""Builds the control plane for tests, one program from Go modules: ``python -m tests.kubernetes.build``.

It is kept outside the repository by the hash of its sources, so that a machine builds it once. The build shows how
far it is, continues until it is done, or until the time of ``--until``, and fails with the reason. Tests that need a
program that is not built are skipped. The kubelet is a second program of the same module (``kubelet_parts``), and Helm
has a module of its own (``chart``).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

SOURCES = Path(__file__).parent / "parts"
PLANE, KUBELET, HELM, JOBSET = "kube", "kubelet", "helm", "jobset"
_PACKAGES = {PLANE: ".", KUBELET: "./kubelet", HELM: "helm.sh/helm/v3/cmd/helm", JOBSET: "sigs.k8s.io/jobset"}
_FOLDERS = {PLANE: SOURCES, KUBELET: SOURCES, HELM: SOURCES.parent / "helm", JOBSET: SOURCES.parent / "jobset"}
_MAINS = {PLANE: ["main.go"], KUBELET: ["kubelet/main.go"], HELM: [], JOBSET: []}
PROGRESS_S = 15.0
"""Seconds between lines that report the progress of a build. Two idle cores take five minutes for the control plane."""
POLL_S = 0.5
NICENESS = 15
OUTPUT_LINES_SHOWN = 20
_PR_SET_PDEATHSIG = 1


class CannotBuild(Exception):
    """Raised when the machine lacks a requirement of the build, or the time is up; the sources are not at fault."""


def cache() -> Path:
    """Return the folder of this machine for tests with a real Kubernetes."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "peloton" / "kubernetes"


def program(name: str = PLANE) -> Path:
    """Return the path of the built program of these sources."""
    digest = hashlib.sha256()
    for source in ("go.mod", "go.sum", *_MAINS[name]):
        digest.update((_FOLDERS[name] / source).read_bytes())
    return cache() / digest.hexdigest()[:16] / name


def is_built(name: str = PLANE) -> bool:
    return program(name).is_file()


def kubernetes_version() -> str:
    found = re.search(r"k8s\.io/kubernetes (v[\d.]+)", (SOURCES / "go.mod").read_text(encoding="utf-8"))
    assert found is not None, "go.mod requires no k8s.io/kubernetes"
    return found[1]


def _variables(name: str) -> dict[str, str]:
    """Return the variables that the linker sets: the versions that the program reports and assumes."""
    if name == JOBSET:
        return {}
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".")
    if name == HELM:
        assumed = "helm.sh/helm/v3/pkg/chartutil.k8sVersion"
        return {f"{assumed}Major": major, f"{assumed}Minor": minor}
    place = "k8s.io/component-base/version"
    return {f"{place}.gitVersion": version, f"{place}.gitMajor": major, f"{place}.gitMinor": minor}


def build(name: str = PLANE, until_s: float | None = None) -> None:
    """Build the program unless it is there, until this unix time at most. Go keeps all that it has compiled, so the
    next build continues from there. Raises CannotBuild, or CalledProcessError when the sources are wrong."""
    go = shutil.which("go")
    if go is None:
        raise CannotBuild("Go is not installed (https://go.dev, 1.26 or later)")
    target, package = program(name), _PACKAGES[name]
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        _lock(lock.fileno(), name, until_s)  # the kernel unlocks it with this process
        if target.is_file():
            return
        packages = _Packages(name)
        try:
            _run([go, "list", "-deps", "-f", LISTED, package], name, until_s, packages.listed, packages)
        except subprocess.CalledProcessError as error:
            raise CannotBuild(f"its modules cannot be fetched:\n{last_lines(error.output)}") from None
        built = target.with_suffix(".new")
        flags = " ".join(["-s -w", *(f"-X {key}={value}" for key, value in _variables(name).items())])
        cores = str(os.cpu_count() or 1)
        argv = [go, "build", "-v", "-p", cores, "-trimpath", "-ldflags", flags, "-o", str(built), package]
        _run(argv, name, until_s, packages.compiled, packages)
        built.replace(target)


LISTED = "{{with .Error}}{{.}}{{else}}{{.ImportPath}}{{end}}"
_PACKAGE = re.compile(r"[\w.~/-]+")


class _Packages:
    """Counts the packages of a program, and the compiled ones; cached packages of Go are not compiled again."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began_s = time.monotonic()
        self._paths: set[str] = set()
        self._compiled_count = 0

    def listed(self, line: str) -> bool:
        """Read a line of the list. Return whether it is a package."""
        if is_package := _PACKAGE.fullmatch(line) is not None:
            self._paths.add(line)
        return is_package

    def compiled(self, line: str) -> bool:
        is_package = line in self._paths
        self._compiled_count += is_package
        return is_package

    def __str__(self) -> str:
        """Return the progress of the build."""
        seconds = time.monotonic() - self._began_s
        if not self._compiled_count:
            return f"{self._name}: reads modules, {seconds:.0f} s"
        return f"{self._name}: compiled {self._compiled_count} packages of {len(self._paths)} at most, {seconds:.0f} s"


def _lock(lock: int, name: str, until_s: float | None) -> None:
    """Wait for the end of another build of the same program. Raises CannotBuild when the time is up."""
    is_told = False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not is_told:
                print(f"{name}: another process builds it, waiting for that ...", flush=True)
                is_told = True
        if until_s is not None and time.time() >= until_s:
            raise CannotBuild("another process still builds it, and the time is up")
        time.sleep(POLL_S)


def _run(
    argv: list[str], name: str, until_s: float | None, is_progress: Callable[[str], bool], progress: object
) -> None:
    """Run a command of Go, and print the progress periodically. Lines of its output other than progress are the text of
    the error.
    """
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly"}
    process = subprocess.Popen(
        argv,
        cwd=_FOLDERS[name],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # its compilers end with it
        preexec_fn=_gently,
    )
    assert process.stdout is not None
    said = deque[str](maxlen=OUTPUT_LINES_SHOWN)
    reader = threading.Thread(target=_read, args=(process.stdout, is_progress, said), daemon=True)
    reader.start()
    try:
        shown_s = time.monotonic()
        while process.poll() is None:
            if until_s is not None and time.time() >= until_s:
                raise CannotBuild(f"the time is up ({progress}); the next build continues from here")
            if time.monotonic() - shown_s >= PROGRESS_S:
                shown_s = time.monotonic()
                print(progress, flush=True)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        reader.join()
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, argv, "\n".join(said))


def _read(output: IO[str], is_progress: Callable[[str], bool], said: deque[str]) -> None:
    with output:
        said.extend(line for line in map(str.rstrip, output) if not is_progress(line))


def _gently() -> None:
    """Lower the priority of the child, which ends when its parent is killed."""
    os.nice(NICENESS)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def last_lines(output: str) -> str:
    return "\n".join(output.splitlines()[-OUTPUT_LINES_SHOWN:])


def deadline_of(argv: Sequence[str]) -> float | None:
    """Read the arguments: the unix time until which a build may go on, or None for no bound."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--until", type=float, metavar="UNIX_TIME", help="give up then; without it: never")
    found: float | None = parser.parse_args(argv).until
    return found


def main(argv: Sequence[str]) -> int:
    until_s, began_s = deadline_of(argv), time.monotonic()
    if is_built():
        print(f"Kubernetes {kubernetes_version()} is built: {program()}")
        return 0
    print(f"building Kubernetes {kubernetes_version()} for the tests ...", flush=True)
    try:
        build(until_s=until_s)
    except CannotBuild as error:
        print(f"no real Kubernetes for the tests, which skip what needs it: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"{' '.join(error.cmd[:2])} failed:\n{last_lines(error.output)}", file=sys.stderr)
        return 1
    print(f"built in {time.monotonic() - began_s:.0f} s: {program()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
