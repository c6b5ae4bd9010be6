"""A worker of Prefect for the work pool that is the argument, in the environment of Prefect.

It stands for ``prefect worker start``, which finds the worker by the metadata of an installed package.
"""

from __future__ import annotations

import asyncio
import sys

from peloton.integrations.prefect import PelotonWorker

asyncio.run(PelotonWorker(work_pool_name=sys.argv[1], prefetch_seconds=1).start())
