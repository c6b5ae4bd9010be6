"""A deploy controller: rolls a version of a service out to several clusters, and back when a pod fails.

    python deploy.py web-2 web.yaml --version 2 --job UUID --cluster localhost:5397 --cluster localhost:5398
    python deploy.py web-2 web.yaml --version 2 --api aurora --job web/prod/shop --cluster localhost:5396 ...

A canary in the first cluster, batches there, then batches in the others; after each, no pod may fail for a while. The
controller may be killed at any moment and started again with the same arguments: each of its calls has a key that
begins with the name of the deploy, so it repeats all calls, and finished ones have no effect. While it is down no batch
begins, because no pulses arrive. Its state is in one small file.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import grpc
from aurora import Bridge, Refused
from cluster import Cluster
from service import AGAIN_S, Seen, Service, Wanted


class Memory:
    """State in the file: the previous version in each cluster, the progress of the watches, and the reason of a
    rollback.
    """

    def __init__(self, path: Path, clusters: list[Service]) -> None:
        self.path = path
        self.lock = threading.Lock()
        stored = json.loads(path.read_text()) if path.exists() else {}
        self.before: dict[str, str] = stored.get("before") or {each.address: each.before() for each in clusters}
        self.seen = {each.address: Seen(**stored.get("seen", {}).get(each.address, {})) for each in clusters}
        self.trouble: str = stored.get("trouble", "")
        self.save()

    def save(self) -> None:
        with self.lock:
            seen = {address: asdict(each) for address, each in self.seen.items()}
            text = json.dumps({"before": self.before, "seen": seen, "trouble": self.trouble})
            new = self.path.with_suffix(".new")
            new.write_text(text)
            new.replace(self.path)  # a file that was half written is never read


class Deploy:
    def __init__(self, wanted: Wanted, clusters: list[Service], memory: Memory) -> None:
        self.wanted, self.clusters, self.memory = wanted, clusters, memory
        self.health = [each.health(memory.seen[each.address], memory.save) for each in clusters]

    def run(self) -> bool:
        """Return whether all clusters have the new version; otherwise none has."""
        for each in self.health:
            each.start()
        for each in self.health:
            each.is_watching.wait()
        for name, cluster, canaries in self.phases():
            trouble = self.memory.trouble or self.trouble() or self.bring_out(name, cluster, canaries) or self.bake()
            if trouble:
                self.take_back(trouble)
                return False
        return True

    def phases(self) -> Iterator[tuple[str, Service, int]]:
        """Yield name, cluster and number of canaries of each phase."""
        yield "canary", self.clusters[0], self.wanted.canaries
        for cluster in self.clusters:
            yield "batches", cluster, 0

    def bring_out(self, name: str, cluster: Service, canaries: int) -> str:
        """Roll out the version; return the reason of a failure."""
        key = f"{self.wanted.deploy}/{name}"
        cluster.roll_out(key, self.wanted, self.memory.before[cluster.address], canaries)
        state = self.follow(name, cluster, pulse=True)
        return "" if state == "SUCCEEDED" else self.trouble() or f"the update has {state} in {cluster.address}"

    def follow(self, name: str, cluster: Service, pulse: bool) -> str:
        state = ""
        for now in cluster.progress(f"{self.wanted.deploy}/{name}", pulse):
            if now != state:
                state = now
                print(f"{self.wanted.deploy}: {name} in {cluster.address}: {state}", flush=True)
            if pulse and self.trouble():
                break
        return state

    def trouble(self) -> str:
        """Return a problem of the pods in any cluster."""
        return next((seen.trouble for seen in self.memory.seen.values() if seen.trouble), "")

    def bake(self) -> str:
        """Wait for a while in which no pod may fail; return the first problem."""
        until_s = time.monotonic() + self.wanted.bake_s
        while time.monotonic() < until_s and not self.trouble():
            time.sleep(AGAIN_S / 4)
        return self.trouble()

    def take_back(self, trouble: str) -> None:
        """Roll all clusters back at once. The state is saved first: a restarted controller does not begin with the
        canary again.
        """
        self.memory.trouble = trouble
        self.memory.save()
        print(f"{self.wanted.deploy}: TAKEN BACK, because {trouble}", flush=True)
        touched = [each for each in self.clusters if any(map(self.is_mine, each.update_keys()))]
        for cluster in touched:
            cluster.take_back(f"{self.wanted.deploy}/back", self.wanted, self.memory.before[cluster.address])
        for cluster in touched:
            self.follow("back", cluster, pulse=False)

    def is_mine(self, key: str) -> bool:
        return key.startswith(f"{self.wanted.deploy}/")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("deploy", help="the name of this deploy; the same name continues it")
    parser.add_argument("spec", type=Path, help="YAML file of the service")
    parser.add_argument("--version", required=True, help="what the variable VERSION of the service is to be")
    parser.add_argument(
        "--api", choices=("peloton", "aurora"), default="peloton", help="by which the clusters are called"
    )
    parser.add_argument("--job", required=True, help="UUID of the service, or with --api aurora ROLE/ENVIRONMENT/NAME")
    parser.add_argument("--cluster", required=True, action="append", metavar="HOST:PORT", help="in this order")
    parser.add_argument("--memory", type=Path, default=Path("."), metavar="FOLDER", help="for the file of the deploy")
    parser.add_argument("--canaries", type=int, default=1, metavar="N")
    parser.add_argument("--batch-size", type=int, default=2, metavar="N")
    parser.add_argument("--bake", type=float, default=5.0, metavar="SECONDS", help="in which nothing may fail")
    options = parser.parse_args()
    kinds: dict[str, Callable[[str, str], Service]] = {"peloton": Cluster, "aurora": Bridge}
    clusters = [kinds[options.api](address, options.job) for address in options.cluster]
    wanted = Wanted(options.deploy, options.spec, options.version, options.canaries, options.batch_size, options.bake)
    try:
        memory = Memory(options.memory / f"{options.deploy}.json", clusters)
        is_out = Deploy(wanted, clusters, memory).run()
    except grpc.RpcError as error:  # refused: another client changed the service, or the deploy had other arguments
        print(f"{options.deploy}: {error.details()} ({error.code().name})", file=sys.stderr)
        return 2
    except Refused as refused:
        print(f"{options.deploy}: {refused}", file=sys.stderr)
        return 2
    print(f"{options.deploy}: {'DONE' if is_out else 'version ' + options.version + ' is nowhere'}", flush=True)
    return 0 if is_out else 1


if __name__ == "__main__":
    sys.exit(main())
