"""Bounds of the configurations of jobs and pools. The api and the resource manager check them; the JSON schemas of the
files show them in editors."""

from __future__ import annotations

import re

TASKS_PER_JOB_MAX = 100_000
TEXT_MAX = 4_000
"""Maximum characters of a name, a description or a label: each answer about the job contains them."""
LABELS_MAX = 1_000
PORT_MAX = 65_535
COMMAND_BYTES_MAX = 128 * 1024 - 1
"""Maximum bytes of a command: Linux refuses a longer argument of a program."""
VOLUME_PATH_MAX = 200
VOLUME_MB_MAX = 2**31 - 1
CONTAINERS_MAX = 20
CONTAINER_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
AMOUNTS_MAX = {"cpuLimit": 2.0**30, "memLimitMb": 2.0**40, "diskLimitMb": 2.0**40, "gpuLimit": 2.0**30}
"""Maximum amount of each kind that a pod may request, in the wire's units: sums of four million pods stay within int64,
in thousandths of a cpu or gpu."""
SPREADS_MAX = 8
"""Maximum host labels over which one job spreads."""

POOL_KINDS = ("cpu", "gpu", "memory", "disk")
"""Kinds of resources, in their order on the wire."""
POOL_NAME_MAX = 255
CONTROLLER_PERCENT_MAX = 100
SLACK_PERCENT_MAX = 10_000
"""Maximum slack limit in percent, above any limit with an effect."""
