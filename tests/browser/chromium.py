"""Browser of the tests, installed on supported machines: ``python -m tests.browser.chromium``.

On other machines the command prints the reason and succeeds: tests that need a browser are then skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time

VARIABLE = "PELOTON_TEST_CHROMIUM"
"""Environment variable with the path of another browser's program."""
NAMES = ("chromium", "chromium-browser", "google-chrome")
PACKAGES = ("chromium", "fonts-dejavu-core")  # one family of fonts, so that pages look alike everywhere
INSTALL_MAX_S = 300.0


class CannotInstall(Exception):
    """Raised when this machine is no Debian, cannot reach an archive of it, or permits no installation."""


def program() -> str | None:
    """Return the path of the browser, None without one."""
    if mine := os.environ.get(VARIABLE):
        return shutil.which(mine)
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def lacking() -> str:
    """Return why there is no browser, as the reason of a skipped test; empty when there is one."""
    if program():
        return ""
    if mine := os.environ.get(VARIABLE):
        return f"{VARIABLE}: {mine} is no program"
    return f"no {' or '.join(NAMES)} is installed: run make browser as root on a Debian, or set {VARIABLE}"


def install() -> None:
    """Install the browser. Raises CannotInstall."""
    if shutil.which("apt-get") is None:
        raise CannotInstall("apt-get is not installed: want Debian")
    if os.geteuid() != 0:
        raise CannotInstall(f"only root may install {' and '.join(PACKAGES)}")
    until_s = time.monotonic() + INSTALL_MAX_S
    _run(["apt-get", "update"], until_s)
    _run(["apt-get", "install", "--yes", "--no-install-recommends", *PACKAGES], until_s)


def _run(argv: list[str], until_s: float) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    left_s = max(until_s - time.monotonic(), 1.0)
    try:
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=left_s, check=False)
    except subprocess.TimeoutExpired:
        raise CannotInstall(f"{' '.join(argv)} takes longer than {INSTALL_MAX_S:.0f} s in all") from None
    if done.returncode != 0:
        raise CannotInstall(f"{' '.join(argv)}: {done.stderr.strip()[-500:]}")


def main() -> int:
    try:
        if lacking():
            print(f"installing {' and '.join(PACKAGES)} for the tests ...", flush=True)
            install()
    except CannotInstall as error:
        print(f"no browser for the tests, which skip what needs it: {error}")
        return 0
    print(f"the tests have a browser: {program()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
