"""Helm for the tests, and the files of deploy/kubernetes, which it renders.

``python -m tests.kubernetes.chart`` builds Helm, as ``tests.kubernetes.build`` builds the control plane: two minutes on
an idle core. ``python -m tests.kubernetes.chart render`` writes the files again; each of them states the digest of the
chart that it was made of, so that stale ones are found without Helm.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.kubernetes import build

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm/peloton"
RENDERED = ROOT / "deploy/kubernetes"
VALUES = CHART / "rendered.yaml"
NAMESPACE = "peloton-system"
FILES = {
    "cluster": "10-cluster.yaml",
    "settings": "20-settings.yaml",
    "roles": "30-roles.yaml",
    "network": "40-network.yaml",
    "external-pods": "50-pools-for-kubectl.yaml",
    "resource-pools": "60-resource-pools.yaml",
    "trial": "trial/postgres-and-temporal.yaml",
}
"""Rendered files by their templates."""
HEADER = "# Rendered by `make manifests` from deploy/helm/peloton, digest {}.\n"
TIMEOUT_S = 180.0
_SOURCE = re.compile(r"# Source: peloton/templates/([\w-]+)\.yaml\n")


def digest() -> str:
    """Return the digest of all files of the chart."""
    found = hashlib.sha256()
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        found.update(f"{path.relative_to(CHART)}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def helm(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the built Helm, and return its result, whatever it is."""
    argv = [str(build.program(build.HELM)), *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)


def template(*arguments: object) -> str:
    """Return all manifests of the chart with these arguments of ``helm template``."""
    done = helm("template", "peloton", CHART, "--namespace", NAMESPACE, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def render() -> dict[str, str]:
    """Return the text of each file of deploy/kubernetes that is made of the chart."""
    texts = dict.fromkeys(FILES.values(), "")
    for part in template("--values", VALUES).split("---\n"):
        if found := _SOURCE.match(part):
            name = FILES[found[1]]
            body = part[found.end() :].rstrip("\n")
            texts[name] += f"{'---' if texts[name] else HEADER.format(digest()).rstrip()}\n{body}\n"
    return texts


def _write() -> int:
    for name, text in render().items():
        (RENDERED / name).write_text(text, encoding="utf-8")
    print(f"rendered {len(FILES)} files of {RENDERED.relative_to(ROOT)}")
    return 0


def main(argv: Sequence[str]) -> int:
    if [*argv] == ["render"]:
        return _write()
    until_s, began_s = build.deadline_of(argv), time.monotonic()
    try:
        build.build(build.HELM, until_s)
    except build.CannotBuild as error:
        print(f"no Helm for the tests, which skip what needs it: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"{' '.join(error.cmd[:2])} failed:\n{build.last_lines(error.output)}", file=sys.stderr)
        return 1
    print(f"Helm is built after {time.monotonic() - began_s:.0f} s: {build.program(build.HELM)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
