"""A process that renews a token at the same time as others; this module loads little, since each process imports it."""

from __future__ import annotations

import threading
from pathlib import Path

from peloton.client.sign_in import renew


def renew_together(path: Path, barrier: threading.Barrier) -> None:
    barrier.wait(30)
    renew(path)
