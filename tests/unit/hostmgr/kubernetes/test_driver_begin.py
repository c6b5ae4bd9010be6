"""The start of a session with a cluster."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from services.hostmgr.driver import DriverEvents
from services.hostmgr.kubernetes import driver as module
from services.hostmgr.kubernetes.driver import KubernetesDriver
from services.hostmgr.kubernetes.settings import KubernetesSettings
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, run_scripted, write_kubeconfig
from tests.unit.hostmgr.mesos.sockets import TIMEOUT_S


@pytest.mark.parametrize("page", [b"<html>please log in</html>", b"{}", b"[]"], ids=["a page", "no object", "a list"])
def test_a_session_is_begun_again_after_an_answer_that_cannot_be_read(
    page: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy may answer in place of an apiserver that is still starting."""
    monkeypatch.setattr(module, "BEGIN_RETRY_S", 0.01)
    asked = threading.Semaphore(0)

    def serve(_: Asked) -> Iterator[bytes]:
        asked.release()
        yield answer(200, page)

    with run_scripted(serve) as server:
        kubeconfig = write_kubeconfig(tmp_path, {"server": f"http://{server.address}"})
        driver = KubernetesDriver(KubernetesSettings(str(kubeconfig), slack_period_s=0.0))
        driver.start(cast(DriverEvents, _NoLifecycles()))
        try:
            assert all(asked.acquire(timeout=TIMEOUT_S) for _ in range(5))
        finally:
            driver.stop()


class _NoLifecycles:
    """An event handler that is never called, as no session begins."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)
