"""The browser of the tests, installed where that is possible: ``python -m tests.browser.chromium``.

Where it cannot be installed this says why and succeeds: the tests that need it are skipped then.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time

VARIABLE = "PELOTON_TEST_CHROMIUM"
"""A browser of yours: the path of its program."""
NAMES = ("chromium", "chromium-browser", "google-chrome")
PACKAGES = ("chromium", "fonts-dejavu-core")  # one family of fonts, so that pages look alike everywhere
INSTALL_MAX_S = 300.0


class CannotInstall(Exception):
    """This machine is no Debian, reaches no archive of it, or we may not install."""


def program() -> str | None:
    """The path of the browser, None where none is installed."""
    if mine := os.environ.get(VARIABLE):
        return shutil.which(mine)
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def lacking() -> str:
    """Why there is no browser, as the reason of a test that is skipped; empty when there is one."""
    if program():
        return ""
    if mine := os.environ.get(VARIABLE):
        return f"{VARIABLE}: {mine} is no program"
    return f"no {' or '.join(NAMES)} is installed: run make browser as root on a Debian, or set {VARIABLE}"


def install() -> None:
    """Raises CannotInstall."""
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
