"""The wheel of the client has what its modules import, and none of the product's other modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from peloton.api.generate import PRIVATE

ROOT = Path(__file__).parents[2]
REQUIRED = {"google", "grpc", "yaml"}


def load_hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("client_build", ROOT / "clients" / "python" / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    return hook


def test_the_client_is_chosen_by_its_imports() -> None:
    """All modules that a chosen one imports are chosen, no private one and no server's; only integrations import more
    than the wheel requires."""
    hook = load_hook()
    public = [path.relative_to(ROOT) for path in (ROOT / "peloton" / "api").rglob("*_pb2*.py")]
    generated = {path for path in public if PRIVATE not in path.parents}
    written = {path for path in hook.modules_of(ROOT, generated) if path.suffix == ".py"}
    chosen = written | generated
    others = set()
    for path in written:
        for name in hook.imports_of(ROOT / path):
            assert not (set(hook.files_of(ROOT, name)) - chosen), (path, name)
            top = name.split(".")[0]
            if top not in sys.stdlib_module_names and top != "peloton" and "integrations" not in path.parts:
                others.add(top)

    assert Path("peloton/client/asynchronous.py") in chosen
    assert not {path for path in chosen if PRIVATE in path.parents}
    assert {
        "api",
        "client",
        "integrations",
        "model",
        "__init__.py",
        "errors.py",
        "extras.py",
        "files.py",
        "issuer.py",
    } == {path.parts[1] for path in chosen}
    assert REQUIRED == others
