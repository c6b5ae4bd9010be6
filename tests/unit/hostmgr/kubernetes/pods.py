"""Pods as the recordings of a real kubelet show them, in full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

Json = dict[str, Any]
NAME = "00000000-0000-4000-8000-000000000001-3-2"
_FOLDER = Path(__file__).parent / "recordings"


def read_recording(name: str) -> list[tuple[str, Json]]:
    """Return kinds of events and pods from a recording, which stores the relevant fields in a short form."""
    return [(kind, whole(short)) for kind, short in orjson.loads((_FOLDER / f"{name}.json").read_bytes())]


def last(name: str) -> Json:
    return read_recording(name)[-1][1]


def whole(short: Json) -> Json:
    metadata: Json = {"name": NAME, "namespace": "peloton", "uid": "u-1", "resourceVersion": short["rv"]}
    if "del" in short:
        metadata |= {"deletionTimestamp": short["del"], "deletionGracePeriodSeconds": short["grace"]}
    status: Json = {"phase": short["phase"]}
    status |= {key: short[key] for key in ("reason", "message", "startTime") if key in short}
    status["conditions"] = [
        {"type": kind, "status": words[0], "reason": words[1] if len(words) > 1 else ""}
        for kind, words in short.get("conditions", {}).items()
    ]
    status["containerStatuses"] = [{"name": name, **each} for name, each in short.get("containers", {}).items()]
    containers = [{"name": name} for name in short.get("containers", {"main": {}})]
    return {"metadata": metadata, "spec": {"nodeName": short["node"], "containers": containers}, "status": status}
