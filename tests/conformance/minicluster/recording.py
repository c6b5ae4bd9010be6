"""The recordings of a real master and agents: one JSON object per line, gzip-compressed in this folder."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

FOLDER = Path(__file__).parent / "recordings"


@dataclass
class Recording:
    """The lines of one file and the names they use: master ids, agent ids by host name, ports."""

    name: str
    lines: list[dict[str, Any]]
    master_ids: set[str] = field(default_factory=set)
    # agent id -> host name
    agents: dict[str, str] = field(default_factory=dict)
    # port -> "master" or host name
    ports: dict[int, str] = field(default_factory=dict)

    @property
    def hosts(self) -> list[str]:
        return sorted(set(self.agents.values()))

    def phase(self, tick: float) -> float:
        """The moment in the second at which the allocation ticks fall: the one with most offers."""
        places = [line["t"] % tick for line in self.lines if line.get("event", {}).get("type") == "OFFERS"]
        bins = [0] * _BINS
        for place in places:
            bins[int(place / tick * _BINS) % _BINS] += 1
        best = max(range(_BINS), key=lambda index: bins[index] + bins[(index + 1) % _BINS])
        return best * tick / _BINS


_BINS = 25


def load(name: str) -> Recording:
    """`name` is the beginning of the file name, such as "03"."""
    (path,) = FOLDER.glob(f"{name}*.jsonl.gz")
    lines = [orjson.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    recording = Recording(path.name.removesuffix(".jsonl.gz"), lines)
    for line in lines:
        event = line.get("event", {})
        if event.get("type") == "SUBSCRIBED" and "master_info" in event["subscribed"]:
            info = event["subscribed"]["master_info"]
            recording.master_ids.add(info["id"])
            recording.ports[info["port"]] = "master"
        if event.get("type") == "OFFERS":
            for offer in event["offers"]["offers"]:
                recording.agents[offer["agent_id"]["value"]] = offer["hostname"]
                recording.ports[offer["url"]["address"]["port"]] = offer["hostname"]
    return recording
