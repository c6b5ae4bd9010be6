"""An integration whose framework is missing names the extra."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from peloton.errors import Unimplemented


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("futures", "cloudpickle", "futures"),
        ("joblib", "joblib", "joblib"),
        ("dask", "distributed", "dask"),
        ("prefect", "prefect", "prefect"),
        ("ray", "ray", "ray"),
    ],
)
def test_a_missing_framework_is_named(monkeypatch: pytest.MonkeyPatch, module: str, package: str, extra: str) -> None:
    """The error has the command that installs it."""
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"peloton.integrations.{module}", raising=False)
    with pytest.raises(Unimplemented, match=rf"{package}, which is not installed: .*\[{extra}\]"):
        import_module(f"peloton.integrations.{module}")
