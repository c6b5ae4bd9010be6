"""Train a small model with Horovod's elastic mode: each process computes the gradient of its part of every batch.

It continues from the last commit when processes leave or join, and from the last checkpoint in the folder CHECKPOINTS
when all start again.
"""

import argparse
import os
import time
from pathlib import Path

import horovod.torch as hvd
import torch

FEATURES, ROWS = 8, 64
RATE = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between steps, for demonstrations")
    options = parser.parse_args()

    hvd.init()
    model = torch.nn.Linear(FEATURES, 1, bias=False)
    plain = torch.optim.SGD(model.parameters(), lr=RATE)
    checkpoint = Path(os.environ["CHECKPOINTS"]) / "horovod.pt"
    first = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        first = saved["step"]
        model.load_state_dict(saved["model"])
    optimizer = hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters())
    wanted = torch.arange(1.0, FEATURES + 1)[:, None]

    @hvd.elastic.run
    def train(state: hvd.elastic.TorchState) -> None:
        print(f"rank {hvd.rank()} of {hvd.size()} begins at step {state.step}", flush=True)
        while state.step < options.steps:
            torch.manual_seed(state.step * hvd.size() + hvd.rank())
            x = torch.randn(ROWS, FEATURES)
            loss = torch.mean((model(x) - x @ wanted) ** 2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state.step += 1
            if hvd.rank() == 0:
                print(f"step {state.step} loss {loss.item():.4f} on {hvd.size()} processes", flush=True)
                save(checkpoint, {"step": state.step, "model": model.state_dict()})
            state.commit()
            time.sleep(options.pause)

    train(hvd.elastic.TorchState(model, optimizer, step=first))


def save(path: Path, state: dict[str, object]) -> None:
    """Write a checkpoint under another name first, so that a reader never finds half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)


if __name__ == "__main__":
    main()
