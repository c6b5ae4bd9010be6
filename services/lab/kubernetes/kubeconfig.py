"""Kubeconfig of the emulated apiserver, with its token."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import yaml

from services.lab.shared.bounded_file import read_bounded

NAME = "peloton-emulated"
TOKEN_BYTES = 24


def read_or_make_token(path: Path) -> str:
    """Return the token in the kubeconfig of an earlier start, so that clients keep working over a restart; else a new
    one.
    """
    try:
        found = yaml.safe_load(read_bounded(path))["users"][0]["user"]["token"]
    except (OSError, ValueError, yaml.YAMLError, KeyError, IndexError, TypeError):
        return secrets.token_urlsafe(TOKEN_BYTES)
    return str(found)


def write_kubeconfig(path: Path, server: str, token: str, ca_file: Path | None = None) -> None:
    """Write the kubeconfig. ``ca_file``: authority of the server; None: it speaks plain text."""
    authority = {"certificate-authority": str(ca_file)} if ca_file is not None else {}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NAME, "cluster": {"server": server, **authority}}],
        "users": [{"name": NAME, "user": {"token": token}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
        "current-context": NAME,
    }
    fresh = path.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    os.replace(fresh, path)
