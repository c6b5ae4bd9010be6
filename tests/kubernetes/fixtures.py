"""A real Kubernetes for tests.

Tests that use it have the marker ``REAL_KUBERNETES``: they run in one worker, which starts one control plane for all of
them. Each has a namespace and nodes of its own.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from tests.sharing import Shared

if TYPE_CHECKING:
    from tests.kubernetes.client import Login
    from tests.kubernetes.control_plane import ControlPlane
    from tests.kubernetes.kubelet import Machine

KUBECONFIG = os.environ.get("PELOTON_TEST_KUBERNETES", "")
"""Kubeconfig of an existing cluster, used instead of one that the tests start."""
MUST_HAVE_KUBELET = bool(os.environ.get("PELOTON_TEST_KUBELET"))
"""Setting under which tests that lack a real kubelet fail, and tests of the drivers run on it, too."""
NEVER_S = 3600
REAL_KUBERNETES = pytest.mark.xdist_group("real-kubernetes")


@contextmanager
def running_control_plane(**options: Any) -> Iterator[ControlPlane]:
    """Run a separate control plane, whose parts may be killed. Skips the test when the program is not built."""
    from tests.kubernetes.build import is_built
    from tests.kubernetes.control_plane import ControlPlane

    if not is_built():
        pytest.skip("no real Kubernetes is built: make kubernetes")
    with (
        tempfile.TemporaryDirectory(prefix="kubernetes-", ignore_cleanup_errors=True) as folder,
        ControlPlane(Path(folder), **options) as plane,
    ):
        yield plane


@pytest.fixture(scope="session")
def control_plane(shared: Shared) -> ControlPlane:
    """Return the one of the tests with ``REAL_KUBERNETES``, which ends with them; who kills a part starts it again."""
    return shared.get("control plane", running_control_plane)


@pytest.fixture(scope="session")
def kubernetes(request: pytest.FixtureRequest) -> Path:
    """Return an administrator's kubeconfig of a real Kubernetes: that of PELOTON_TEST_KUBERNETES, or of the tests'
    own.
    """
    if KUBECONFIG:
        return Path(KUBECONFIG)
    plane: ControlPlane = request.getfixturevalue("control_plane")
    return plane.kubeconfig


@pytest.fixture(scope="session")
def kubernetes_login(kubernetes: Path) -> Login:
    from tests.kubernetes.client import login_of

    return login_of(kubernetes)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """Return a node with a real kubelet and containers, on a control plane of its own, which never marks it lost. Tests
    are skipped on machines that cannot run it, unless PELOTON_TEST_KUBELET is set.
    """
    from tests.kubernetes.kubelet import CannotRun, Machine, lacking

    def lacks(why: str) -> NoReturn:
        (pytest.fail if MUST_HAVE_KUBELET else pytest.skip)(f"no real kubelet: {why}")

    if why := lacking():
        lacks(why)
    with running_control_plane(node_grace_s=NEVER_S) as plane, ExitStack() as stack:
        try:
            running = stack.enter_context(Machine(plane))
        except CannotRun as error:
            lacks(str(error))
        yield running
