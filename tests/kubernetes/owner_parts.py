"""Builds the controller of JobSets and fetches schemas of owners: ``python -m tests.kubernetes.owner_parts``.

The schemas (CustomResourceDefinitions) and webhooks are files of Go modules of fixed versions. They are kept outside
the repository as JSON, so that a machine fetches them once. Tests that need them are skipped without them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import orjson
import yaml

from tests.kubernetes import build
from tests.kubernetes.client import Json

FETCH_MAX_S = 120.0


class Source(NamedTuple):
    """A Go module, a folder in it, and the files there by the names under which they are kept."""

    module: str
    folder: str
    files: dict[str, str]


JOBSET = "sigs.k8s.io/jobset@v0.10.1"
"""Module of the schema of JobSets and of their webhooks, of the version that jobset/go.mod requires."""
SOURCES = (
    Source(JOBSET, "config/components/crd/bases", {"jobsets": "jobset.x-k8s.io_jobsets.yaml"}),
    Source(JOBSET, "config/components/webhook", {"jobset-webhooks": "manifests.yaml"}),
    Source(
        "github.com/kubeflow/trainer/v2@v2.1.0",
        "manifests/base/crds",
        {
            "trainjobs": "trainer.kubeflow.org_trainjobs.yaml",
            "clustertrainingruntimes": "trainer.kubeflow.org_clustertrainingruntimes.yaml",
        },
    ),
    Source(
        "github.com/kubeflow/training-operator@v1.9.3",
        "manifests/base/crds",
        {
            "pytorchjobs": "kubeflow.org_pytorchjobs.yaml",
            "tfjobs": "kubeflow.org_tfjobs.yaml",
            "mpijobs": "kubeflow.org_mpijobs.yaml",
            "xgboostjobs": "kubeflow.org_xgboostjobs.yaml",
        },
    ),
    Source(
        "github.com/kubeflow/mpi-operator@v0.6.0", "manifests/base", {"mpijobs-v2beta1": "kubeflow.org_mpijobs.yaml"}
    ),
    Source(
        "github.com/ray-project/kuberay/ray-operator@v1.5.1",
        "config/crd/bases",
        {"rayjobs": "ray.io_rayjobs.yaml", "rayclusters": "ray.io_rayclusters.yaml"},
    ),
    Source(
        "github.com/kubeflow/spark-operator/v2@v2.4.0",
        "config/crd/bases",
        {"sparkapplications": "sparkoperator.k8s.io_sparkapplications.yaml"},
    ),
)


def folder() -> Path:
    """Return the folder of the files of these sources."""
    digest = hashlib.sha256(repr(SOURCES).encode()).hexdigest()[:16]
    return build.cache() / f"owners-{digest}"


def lacking() -> str:
    """Return why tests with owners of other projects cannot run here; empty when they can."""
    if not folder().is_dir():
        return "no schemas of owners are there: make kubernetes"
    return "" if build.is_built(build.JOBSET) else "no controller of JobSets is built: make kubernetes"


def read_objects(name: str) -> list[Json]:
    """Return the objects of the file that is kept under this name."""
    found: list[Json] = orjson.loads((folder() / f"{name}.json").read_bytes())
    return found


def fetch() -> None:
    """Fetch the files of all sources. Raises CannotBuild."""
    if folder().is_dir():
        return
    go = shutil.which("go")
    if go is None:
        raise build.CannotBuild("Go is not installed (https://go.dev, 1.26 or later)")
    folder().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder().parent) as work:
        new = Path(work) / "new"
        new.mkdir()
        for source in SOURCES:
            module = _download(go, source.module, Path(work))
            for name, file in source.files.items():
                text = (module / source.folder / file).read_text(encoding="utf-8")
                objects = [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]
                (new / f"{name}.json").write_bytes(orjson.dumps(objects))
        if not folder().is_dir():
            new.rename(folder())


def _download(go: str, module: str, work: Path) -> Path:
    """Return the folder of the module, which Go keeps and checks. Raises CannotBuild."""
    argv = [go, "mod", "download", "-json", module]
    environment = {**os.environ, "GOFLAGS": "-mod=mod"}
    try:
        done = subprocess.run(
            argv, cwd=work, env=environment, capture_output=True, text=True, timeout=FETCH_MAX_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise build.CannotBuild(f"{' '.join(argv[1:])} takes longer than {FETCH_MAX_S:.0f} s") from None
    if done.returncode != 0:
        said = build.last_lines(done.stdout + done.stderr)
        raise build.CannotBuild(f"the module {module} cannot be fetched:\n{said}")
    return Path(orjson.loads(done.stdout)["Dir"])


def main(argv: Sequence[str]) -> int:
    until_s, began_s = build.deadline_of(argv), time.monotonic()
    try:
        fetch()
        build.build(build.JOBSET, until_s)
    except build.CannotBuild as error:
        print(f"no owners of other projects for the tests, which skip what needs them: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"{' '.join(error.cmd[:2])} failed:\n{build.last_lines(error.output)}", file=sys.stderr)
        return 1
    took_s = time.monotonic() - began_s
    print(f"the controller of JobSets and schemas of owners are there after {took_s:.0f} s: {folder()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
