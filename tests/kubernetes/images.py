"""Image of busybox for containerd, made with the standard library: an archive with an OCI layout."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


def write(path: Path, busybox: Path, images: Mapping[str, Sequence[str]]) -> None:
    """Write the archive. ``images``: full names, and the command of each. All of them hold the same files."""
    blobs: dict[str, bytes] = {}

    def put(content: bytes, media_type: str) -> Json:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    layer = put(_files(busybox), _LAYER)
    manifests = []
    for name, command in images.items():
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": list(command), "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": put(encode(config), _CONFIG),
            "layers": [layer],
        }
        manifests.append({**put(encode(manifest), _MANIFEST), "annotations": {"io.containerd.image.name": name}})
    with tarfile.open(path, "w") as archive:
        _add(archive, "oci-layout", encode({"imageLayoutVersion": "1.0.0"}))
        _add(archive, "index.json", encode({"schemaVersion": 2, "manifests": manifests}))
        for digest, content in blobs.items():
            _add(archive, f"blobs/sha256/{digest}", content)


def _files(busybox: Path) -> bytes:
    """Return a layer: busybox, and a link to it for each of its commands."""
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for name, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777)):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, mode
            archive.addfile(folder)
        _add(archive, "bin/busybox", busybox.read_bytes(), 0o755)
        _add(archive, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")
        for applet in sorted({*applets} - {"busybox"}):
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
    return layer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def encode(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
