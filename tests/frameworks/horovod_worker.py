"""Worker of Horovod's elastic mode without Horovod's collective operations, which need a build against a framework.

Horovod's own code finds the rank at the driver's rendezvous, hears of hosts that leave or join, and restores and resets
the state; gradients are added up by rank 0 over TCP. Started by ``horovodrun`` as it is installed, except that it is
not asked for its collective operations: ``horovod_worker.py run ARGUMENTS...``.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO
from urllib.request import urlopen

import numpy as np
from horovod.common.elastic import ObjectState, run_fn
from horovod.common.exceptions import HorovodInternalError

FEATURES, ROWS, RATE = 8, 64, 0.05
PATIENCE_S = 300.0


class World:
    """Processes of one round; each has a connection to rank 0."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.streams: list[TextIO] = []

    def begin(self) -> None:
        """Enter the first round with the rank that the driver has given to the process."""
        self._meet(int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"]))

    def reset(self) -> None:
        """Report to the driver that the process is ready for another round, and enter it with the rank that it answers.
        Raises SystemExit if it has no slot any more."""
        for stream in self.streams:
            stream.close()
        self.streams = []
        names = ("GLOO_RENDEZVOUS_ADDR", "GLOO_RENDEZVOUS_PORT", "HOSTNAME", "LOCAL_RANK")
        address, port, host, local_rank = (os.environ[f"HOROVOD_{name}"] for name in names)
        answer = urlopen(f"http://{address}:{port}/rank_and_size/{host}:{local_rank}", timeout=PATIENCE_S).read()
        rank, size = map(int, answer.split(b",")[:2])
        if rank < 0:
            sys.exit(0)
        self._meet(rank, size)

    def _meet(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        place = self.folder / "rank0.address"
        try:
            self.streams = self._gather(place) if rank == 0 else [self._reach(place)]
        except OSError as error:
            raise HorovodInternalError(error) from error

    def _gather(self, place: Path) -> list[TextIO]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(PATIENCE_S)
            place.with_suffix(".partial").write_text(str(server.getsockname()[1]))
            place.with_suffix(".partial").replace(place)
            return [server.accept()[0].makefile("rw") for _ in range(self.size - 1)]

    def _reach(self, place: Path) -> TextIO:
        end_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return socket.create_connection(("127.0.0.1", int(place.read_text())), PATIENCE_S).makefile("rw")
            except OSError:
                if time.monotonic() > end_s:
                    raise
                time.sleep(0.2)

    def share(self, value: Any, combine: Callable[[list[Any]], Any]) -> Any:
        """Return what ``combine`` makes of the values of all ranks."""
        try:
            if self.rank:
                self._write(self.streams[0], value)
                return self._read(self.streams[0])
            result = combine([value, *map(self._read, self.streams)])
            for stream in self.streams:
                self._write(stream, result)
            return result
        except (OSError, ValueError) as error:
            raise HorovodInternalError(error) from error

    def _write(self, stream: TextIO, value: object) -> None:
        stream.write(json.dumps(value) + "\n")
        stream.flush()

    def _read(self, stream: TextIO) -> Any:
        return json.loads(stream.readline())


def main(steps: int, pause_s: float) -> None:
    folder = Path(os.environ["CHECKPOINTS"])
    world = World(folder)
    world.begin()
    checkpoint = folder / "horovod.json"
    saved = json.loads(checkpoint.read_text()) if checkpoint.exists() else {"step": 0, "weights": [0.0] * FEATURES}
    wanted = np.arange(1.0, FEATURES + 1)

    def train(state: ObjectState) -> None:
        print(f"rank {world.rank} of {world.size} begins at step {state.step}", flush=True)
        while state.step < steps:
            x = np.random.default_rng((state.step, world.rank)).normal(size=(ROWS, FEATURES))
            error = x @ (np.array(state.weights) - wanted)
            mine = [*(2 * x.T @ error / ROWS), np.mean(error**2)]
            *gradient, loss = world.share(list(map(float, mine)), lambda all_of: np.mean(all_of, axis=0).tolist())
            state.weights = (np.array(state.weights) - RATE * np.array(gradient)).tolist()
            state.step += 1
            if world.rank == 0:
                print(f"step {state.step} loss {loss:.4f} on {world.size} processes", flush=True)
                partial = checkpoint.with_suffix(".partial")
                partial.write_text(json.dumps({"step": state.step, "weights": state.weights}))
                partial.replace(checkpoint)
            state.commit()
            time.sleep(pause_s)

    def first(value: object, **_: object) -> object:
        return world.share(value, lambda all_of: all_of[0])

    run_fn(train, world.reset)(ObjectState(first, lambda: world.rank, **saved))


if __name__ == "__main__":
    if sys.argv[1] == "run":
        from horovod.runner import launch

        launch.gloo_built = lambda **_: True
        sys.argv = ["horovodrun", *sys.argv[2:]]
        launch.run_commandline()
    else:
        main(int(sys.argv[1]), float(sys.argv[2]))
