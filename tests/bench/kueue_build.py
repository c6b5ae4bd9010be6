"""Builds Kueue from its Go module, kept outside the repository by the hash of the versions in ``kueue_module``."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

from tests.bench.figures import Missing

FOLDER = Path(__file__).parent / "kueue_module"
MODULE = "sigs.k8s.io/kueue"
NICENESS = 15


def program() -> Path:
    """Return its controller manager, whose build took 23 minutes on busy cores. Raises Missing when it cannot be
    built.
    """
    digest = hashlib.sha256(b"".join((FOLDER / name).read_bytes() for name in ("go.mod", "go.sum")))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    built = cache / "peloton" / "kueue" / digest.hexdigest()[:16] / "kueue"
    if not built.is_file():
        new = built.with_suffix(f".{os.getpid()}")
        _go("build", "-trimpath", "-ldflags", "-s -w", "-o", str(new), f"{MODULE}/cmd/kueue")
        new.replace(built)
    return built


def version() -> str:
    return str(_module()["Version"])


def manifests() -> Path:
    """Return the folder of its shipped manifests."""
    return Path(_module()["Dir"]) / "config" / "components"


def _module() -> dict[str, str]:
    found: dict[str, str] = json.loads(_go("mod", "download", "-json", MODULE))
    return found


def _go(*arguments: str) -> str:
    command = f"go {' '.join(arguments)}"
    if shutil.which("go") is None:
        raise Missing(f"Kueue needs `{command}`, and Go is not installed")
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly"}
    done = subprocess.run(
        ["nice", "-n", str(NICENESS), "go", *arguments],
        cwd=FOLDER,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Missing(f"`{command}` failed: {(done.stderr or done.stdout).strip()[-1_000:]}")
    return done.stdout
