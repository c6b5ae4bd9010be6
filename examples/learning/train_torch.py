"""Train a small model with torch.distributed; torchrun starts the processes again when others leave or join.

It continues from the last checkpoint in the folder CHECKPOINTS, which all processes read and rank 0 writes.
"""

import argparse
import os
import time
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

FEATURES, ROWS = 8, 64
RATE = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between steps, for demonstrations")
    options = parser.parse_args()

    distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    device = f"cuda:{os.environ['LOCAL_RANK']}" if torch.cuda.is_available() else "cpu"
    layer = torch.nn.Linear(FEATURES, 1, bias=False).to(device)

    checkpoint = Path(os.environ["CHECKPOINTS"]) / "torch.pt"
    first = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        first = saved["step"]
        layer.load_state_dict(saved["layer"])
    model = DistributedDataParallel(layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    print(f"rank {rank} of {size} begins at step {first}", flush=True)

    wanted = torch.arange(1.0, FEATURES + 1, device=device)[:, None]
    for number in range(first, options.steps):
        torch.manual_seed(number * size + rank)
        x = torch.randn(ROWS, FEATURES).to(device)
        loss = torch.mean((model(x) - x @ wanted) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {number + 1} loss {loss.item():.4f} on {size} processes", flush=True)
            save(checkpoint, {"step": number + 1, "layer": layer.state_dict()})
        time.sleep(options.pause)
    distributed.destroy_process_group()


def save(path: Path, state: dict[str, object]) -> None:
    """Write a checkpoint under another name first, so that a reader never finds half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)


if __name__ == "__main__":
    main()
