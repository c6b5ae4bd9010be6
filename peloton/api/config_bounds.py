"""Numbers that configurations of jobs and pools must keep to. The api and the resource manager judge by them; the JSON
schemas of the files tell them to editors."""

from __future__ import annotations

import re

TASKS_PER_JOB_MAX = 100_000
TEXT_MAX = 4_000
"""Characters of a name, a description or a label: they travel with every answer about the job."""
LABELS_MAX = 1_000
PORT_MAX = 65_535
COMMAND_BYTES_MAX = 128 * 1024 - 1
"""Linux refuses a longer argument of a program."""
VOLUME_PATH_MAX = 200
VOLUME_MB_MAX = 2**31 - 1
CONTAINERS_MAX = 20
CONTAINER_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
AMOUNTS_MAX = {"cpuLimit": 2.0**30, "memLimitMb": 2.0**40, "diskLimitMb": 2.0**40, "gpuLimit": 2.0**30}
"""Largest amount of each kind that a pod may ask, in the wire's units: sums of four million pods stay within int64, in
thousandths of a cpu or gpu."""
SPREADS_MAX = 8
"""Labels of hosts over which one job spreads."""

POOL_KINDS = ("cpu", "gpu", "memory", "disk")
"""Kinds of resources, in their order on the wire."""
POOL_NAME_MAX = 255
CONTROLLER_PERCENT_MAX = 100
SLACK_PERCENT_MAX = 10_000
"""Far beyond what makes a difference."""
