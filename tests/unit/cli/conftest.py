"""The command line run in this process against a fake API."""

from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from cli.main import peloton
from tests.unit.cli.fake_api import FakeAgent, FakeApi

Run = Callable[..., Result]


@pytest.fixture
def api() -> Iterator[FakeApi]:
    fake = FakeApi()
    yield fake
    fake.stop()


@pytest.fixture
def agent() -> Iterator[FakeAgent]:
    fake = FakeAgent()
    yield fake
    fake.stop()


@pytest.fixture
def run(api: FakeApi) -> Run:
    """Run a command line, given as one text or as words, against the fake API."""

    def run_peloton(*words: object, text: str = "") -> Result:
        arguments = str(words[0]).split() if len(words) == 1 else [str(word) for word in words]
        return CliRunner().invoke(
            peloton, arguments, prog_name="peloton", input=text, env={"PELOTON_ADDRESS": api.address}
        )

    return run_peloton
