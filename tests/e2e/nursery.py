"""A process that has loaded all roles, and forks one of them whenever it is asked: see ``forked``."""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import selectors
import signal
import socket
import sys
import time
from typing import Any

from services.lab.shared.processes import die_with_parent

ORDER_BYTES_MAX = 1 << 20
LOADED = (
    "cli.serve",
    "peloton.scheduling.placement",
    "services.api.server",
    "services.cluster_drivers",
    "services.host_monitors",
    "services.hostmgr.client",
    "services.hostmgr.drain_watch",
    "services.hostmgr.federation",
    "services.hostmgr.host_pool_controller",
    "services.hostmgr.image_prefetch",
    "services.hostmgr.maintenance",
    "services.hostmgr.manager",
    "services.hostmgr.mesos.driver",
    "services.hostmgr.qos",
    "services.hostmgr.rebalancer",
    "services.hostmgr.servicer",
    "services.resmgr.client",
    "services.resmgr.server",
    "services.resmgr.settings",
    "services.wakers.workflow_restarter",
    "services.runtime",
    "services.worker.worker",
    "services.temporal.worker_versions",
)
"""Loads the roles with all that they import. A module that a role loads in addition is loaded in its own process."""


def fork_until_the_end(orders: socket.socket) -> None:
    """Return in each child, whose work is in ``sys.argv``. Ends with its parent, and its children with it."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write)
    children: dict[int, int] = {}  # pid: where its end is reported
    with selectors.DefaultSelector() as selector:
        selector.register(orders, selectors.EVENT_READ)
        selector.register(read, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if read in ready:
                os.read(read, 4096)
                reap(children)
            if orders not in ready:
                continue
            message, descriptors, _, _ = socket.recv_fds(orders, ORDER_BYTES_MAX, 2)
            if not message:
                os._exit(0)
            if not (pid := os.fork()):
                break
            output, ended = descriptors
            os.close(output)
            children[pid] = ended
            orders.send(str(pid).encode())
    become(json.loads(message), descriptors[0])


def reap(children: dict[int, int]) -> None:
    for pid in list(children):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            ended = children.pop(pid)
            with contextlib.suppress(BrokenPipeError):  # its client is gone
                os.write(ended, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(ended)


def become(order: dict[str, Any], output: int) -> None:
    """Reset this process to the state of a newly started one."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    die_with_parent()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, 1024)
    # The nursery's own may be a file, whose position they remember.
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w"), write_through=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w"), errors="backslashreplace", write_through=True)
    os.environ.clear()
    os.environ.update(order["environment"])
    time.tzset()
    os.chdir(str(order["folder"]))
    sys.argv = ["peloton", *order["words"]]


if __name__ == "__main__":
    gc.disable()
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()
    fork_until_the_end(socket.socket(fileno=int(sys.argv[1])))
    from cli.main import main

    main()
