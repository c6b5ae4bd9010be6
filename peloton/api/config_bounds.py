"""Bounds of the configurations of jobs and pools. The api and the resource manager check them; the JSON schemas of the
files show them in editors."""

from __future__ import annotations

import re

from peloton.model.text import shorten

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
EXTENDED_NAME = re.compile(
    r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII
)
"""Names of extended resources: those of Kubernetes. A name without a prefix may be a misspelt kind."""
HOST_PREFERENCES_MAX = 16
PREFERENCE_WEIGHT_MAX = 100
SPREADS_MAX = 8
"""Maximum host labels over which one job spreads."""

POOL_KINDS = ("cpu", "gpu", "memory", "disk")
"""Kinds of resources, in their order on the wire. Extended resources follow them by name."""
RESERVED_NAMES = ("nvidia.com/gpu",)
"""Names that extended resources cannot have: what Kubernetes calls gpu."""
POOL_NAME_MAX = 255
CONTROLLER_PERCENT_MAX = 100
SLACK_PERCENT_MAX = 10_000
"""Maximum slack limit in percent, above any limit with an effect."""


def check_extended_name(name: str) -> str:
    """Return why an extended resource cannot have this name, or ""."""
    if EXTENDED_NAME.fullmatch(name) and name not in RESERVED_NAMES:
        return ""
    known = ", ".join(POOL_KINDS)
    return (
        f"unknown resource type {shorten(name)} (there are {known}, and names with a prefix: license/NAME, mesos/NAME, "
        "example.com/NAME)"
    )
