"""Plays the story of README.md: three deploys of one service to two clusters.

    python examples/udeploy/run.py                                                       # clusters of its own
    python examples/udeploy/run.py --address localhost:5397 --address localhost:5398     # of two `peloton up`
    python examples/udeploy/run.py --api aurora                                          # over the Aurora bridge

At the end it stops its processes, and deletes its objects in your clusters; by Aurora's API it stops its pods.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from aurora import Bridge
from cluster import Cluster, state_of
from service import Wanted

from peloton.api.v1alpha.job.stateless.stateless_pb2 import WorkflowStatus
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.pod.pod_pb2 import POD_STATE_RUNNING

FOLDER = Path(os.path.relpath(Path(__file__).parent))  # as you would type it
PELOTON = [sys.executable, "-m", "cli.main"]
POOL = "/udeploy"
INSTANCES = 7  # of web.yaml
TIMEOUT_S = 120.0  # for any one step of the story


class StoryEnded(Exception):
    """Raised when a step of the story has an unexpected result, with the reason as its message."""


class Story:
    api = "peloton"

    def __init__(self, addresses: list[str], out: Path) -> None:
        self.job, self.out = str(uuid.uuid4()), out
        self.clusters = [Cluster(address, self.job) for address in addresses]

    def play(self, cleanup: ExitStack) -> None:
        for cluster in self.clusters:
            self.create(cluster, cleanup)
        self.expect("1")

        say("a good version")
        self.deploy("web-2", "2", batch_size=7, bake_s=1, exit_code=0)
        self.expect("2")

        say("a version whose pods fail after a while: the canary's health tells, and it is taken back")
        self.deploy("web-bad", "bad", batch_size=7, bake_s=30, exit_code=1)
        self.expect("2")

        say("a controller that is killed between its batches")
        with self.controller("web-3", "3", batch_size=1, bake_s=1):
            wait(lambda: self.has_begun("web-3/batches"), "batches in the first cluster")
        self.without_controller()

        say("the same command again: it continues")
        self.deploy("web-3", "3", batch_size=1, bake_s=1, exit_code=0)
        self.expect("3")

    # -- commands

    def create(self, cluster: Cluster, cleanup: ExitStack) -> None:
        """Create version 1 of the service, in a pool of its own."""
        peloton(cluster, "respool", "create", POOL, str(FOLDER / "pool.yaml"))
        cleanup.callback(peloton, cluster, "respool", "delete", POOL, quiet=True)
        peloton(cluster, "job", "stateless", "create", POOL, str(FOLDER / "web.yaml"), "--jobID", self.job)
        cleanup.callback(self.remove, cluster)

    def remove(self, cluster: Cluster) -> None:
        peloton(cluster, "job", "stateless", "delete", self.job, "--force", quiet=True)
        wait(lambda: not peloton(cluster, "job", "stateless", "get", self.job, quiet=True), "the end of the service")

    @contextmanager
    def controller(self, deploy: str, version: str, batch_size: int, bake_s: int) -> Iterator[subprocess.Popen[str]]:
        """Run the controller. It is killed if the block ends before it."""
        words = [deploy, str(FOLDER / "web.yaml"), "--version", version, "--batch-size", str(batch_size)]
        words += ["--bake", str(bake_s), "--api", self.api, "--job", self.job]
        words += [word for cluster in self.clusters for word in ("--cluster", cluster.address)]
        print("$ python", FOLDER / "deploy.py", *words, flush=True)
        command = [sys.executable, str(FOLDER / "deploy.py"), *words, "--memory", str(self.out)]
        controller = subprocess.Popen(command, text=True, start_new_session=True)
        try:
            yield controller
        finally:
            controller.kill()
            controller.wait()

    def deploy(self, deploy: str, version: str, batch_size: int, bake_s: int, exit_code: int) -> None:
        with self.controller(deploy, version, batch_size, bake_s) as controller:
            code = controller.wait(TIMEOUT_S)
        if code != exit_code:
            raise StoryEnded(f"deploy {deploy} ended with exit code {code}, not {exit_code}")

    # -- checks

    def expect(self, version: str) -> None:
        """Check that every pod of both clusters runs the version."""
        for cluster in self.clusters:
            where = f"version {version} in {cluster.address}"
            wait(lambda cluster=cluster: set(self.running(cluster)) == {version}, where)
            print(f"   {cluster.address}: {self.running(cluster)[version]} pods run version {version}", flush=True)

    def latest(self) -> WorkflowStatus:
        """The newest update in the first cluster."""
        request = svc.GetJobRequest(job_id=self.clusters[0].id)
        return self.clusters[0].client.services.GetJob(request).job_info.status.workflow_status

    def has_begun(self, key: str) -> bool:
        info = self.clusters[0].updates().get(key)
        return info is not None and state_of(info.status) == "ROLLING_FORWARD" and bool(info.status.instances_current)

    def without_controller(self) -> None:
        wait(lambda: self.latest().awaiting_pulse, "an update that waits for a pulse")
        latest = self.latest()
        print(f"   without pulses it waits, with {latest.num_instances_remaining} instances to go", flush=True)

    def running(self, cluster: Cluster) -> Counter[str]:
        """Return the number of pods by version; "" for pods that do not run."""
        answer = cluster.client.services.QueryPods(svc.QueryPodsRequest(job_id=cluster.id))
        found: Counter[str] = Counter()
        for pod in answer.pods:
            variables = {each.name: each.value for each in pod.spec.containers[0].environment}
            found[variables["VERSION"] if pod.status.state == POD_STATE_RUNNING else ""] += 1
        return found


class AuroraStory(Story):
    """The same by Aurora's API: jobs are made by an update, and only the first pulse of each matters."""

    api = "aurora"

    def __init__(self, addresses: list[str], out: Path) -> None:
        self.job, self.out = f"udeploy/test/web-{uuid.uuid4().hex[:6]}", out
        self.clusters = [Bridge(address, self.job) for address in addresses]

    def create(self, bridge: Bridge, cleanup: ExitStack) -> None:
        first = Wanted("web-1", FOLDER / "web.yaml", "1", canaries=0, batch_size=0, bake_s=0)
        bridge.create(first)
        cleanup.callback(bridge.stop)

    def has_begun(self, key: str) -> bool:
        return key in self.clusters[0].update_keys()

    def without_controller(self) -> None:
        print("   its update continues after the first pulse", flush=True)

    def running(self, bridge: Bridge) -> Counter[str]:
        found = Counter(version for _, version, _ in bridge.running())
        return found if found.total() == INSTANCES else found + Counter({"": INSTANCES})


def say(text: str) -> None:
    print(f"-- {text}", flush=True)


def wait(condition: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise StoryEnded(f"{what} did not come within {TIMEOUT_S:.0f} s")
        time.sleep(0.1)


def peloton(cluster: Cluster, *arguments: str, quiet: bool = False) -> str:
    """Run one command of the CLI. A quiet one reads or cleans up, and may fail."""
    if not quiet:
        print("$ peloton --address", cluster.address, *arguments, flush=True)
    command = [*PELOTON, "--address", cluster.address, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
    if done.returncode and not quiet:
        raise StoryEnded(f"peloton {' '.join(arguments[:3])}: {done.stderr.strip()}")
    return done.stdout


@contextmanager
def own_clusters(folder: Path, api: str) -> Iterator[list[str]]:
    """Two `peloton up` on free ports, which end when this is left; yields the addresses of their APIs."""
    logs = [folder / f"up-{number}.log" for number in (1, 2)]
    ups = []
    try:
        for log in logs:
            with log.open("w") as output:
                command = [*PELOTON, "up", "--port", "0"]
                ups.append(subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True))
        yield [ready(up, log, api) for up, log in zip(ups, logs, strict=True)]
    finally:
        for up in ups:
            up.send_signal(signal.SIGINT)
        for up in ups:
            up.wait()


def ready(up: subprocess.Popen[bytes], log: Path, api: str) -> str:
    pattern = r"Aurora's API: http://(\S+)/api" if api == "aurora" else r"ready: API (\S+),"
    while not (found := re.search(pattern, log.read_text())):
        if up.poll() is not None:
            raise StoryEnded(f"peloton up: {log.read_text().strip().splitlines()[-1]}")
        time.sleep(0.1)
    return found[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--api", choices=("peloton", "aurora"), default="peloton", help="the API of the clusters")
    parser.add_argument("--address", action="append", metavar="HOST:PORT", help="running `peloton up`s; give two")
    parser.add_argument("--out", metavar="FOLDER", type=Path, default=Path("data/udeploy"), help="for logs and memory")
    options = parser.parse_args()
    if options.address and len(options.address) != 2:
        parser.error("give two addresses, or none")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options.out.mkdir(parents=True, exist_ok=True)
    for old in options.out.glob("web-*.json"):  # a new story: its deploys have the names of the one before
        old.unlink()
    try:
        with ExitStack() as cleanup:
            addresses = options.address
            if not addresses:
                print("starting two clusters ...", flush=True)
                addresses = cleanup.enter_context(own_clusters(options.out, options.api))
            story = AuroraStory if options.api == "aurora" else Story
            story(addresses, options.out).play(cleanup)
    except StoryEnded as end:
        print(f"the story ended early: {end}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; everything is cleaned up", file=sys.stderr)
        return 130
    print("the story is over; everything is cleaned up")
    return 0


if __name__ == "__main__":
    sys.exit(main())
