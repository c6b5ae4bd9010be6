"""What all tests share."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

# No deadlines: a slow machine is not a failure. In CI the same examples every time, so that a red run can be repeated;
# everywhere else new ones.
settings.register_profile(
    "peloton",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("peloton")

# A runner that was started in the background ignores Ctrl-C, and so would all processes that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
