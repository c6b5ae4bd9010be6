"""Features of a cluster come from its driver's capabilities, whatever the class of the driver."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from services.cluster_drivers import image_prefetcher_of, make_external_adoption
from services.hostmgr.driver import Capabilities
from services.settings import Settings

OWN: Any = object()
ENDPOINT: Any = object()


def driver_of(**features: Any) -> Any:
    return SimpleNamespace(capabilities=Capabilities(kind="other", **features))


@pytest.mark.parametrize(
    ("driver", "url", "expected"),
    [(driver_of(images=OWN), "", OWN), (driver_of(images=OWN), "http://images", ENDPOINT), (driver_of(), "", ENDPOINT)],
)
def test_the_endpoint_of_the_settings_replaces_the_clusters_own(driver: Any, url: str, expected: Any) -> None:
    """A cluster prefetches by itself if its driver can and the settings name no endpoint."""
    assert expected is image_prefetcher_of(Settings(prefetch_url=url), driver, ENDPOINT)


@pytest.mark.parametrize(("driver", "adopts"), [(driver_of(external_pods=OWN), True), (driver_of(), False)])
def test_external_pods_are_adopted_where_the_driver_lists_them(driver: Any, adopts: bool) -> None:
    """No class of a driver is asked for."""
    storage: Any = SimpleNamespace(pods=None, host_pods=None, external_pods=None, jobs=None, pools=None)
    lifecycles: Any = None
    adoption = make_external_adoption(Settings(), storage, driver, lifecycles, why=lifecycles, unsettled=lifecycles)
    assert adopts == (adoption is not None)
