"""What the global options say, and the client they lead to."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from cli.terminal import echo

if TYPE_CHECKING:
    from peloton.api.client import Client, Patience

DEFAULT_ADDRESS = "localhost:5397"
FOR_PROGRAMS = ("json", "yaml", "name")
FORMATS = ("table", "wide", *FOR_PROGRAMS)


@dataclass
class Settings:
    """Filled by the root command, and by the same options behind a sub-command's name."""

    output: str = ""  # one of FORMATS; empty: what the command prints by itself
    address: str = DEFAULT_ADDRESS
    jobmgr: str | None = None
    resmgr: str | None = None
    hostmgr: str | None = None
    timeout: float = 20.0  # seconds
    patience: float = 60.0  # seconds
    debug: bool = False
    has_waited: bool = field(default=False, repr=False)
    open_client: Client | None = field(default=None, repr=False)

    @property
    def json(self) -> bool:
        return self.output == "json"

    @json.setter
    def json(self, wanted: bool) -> None:
        """``--json`` is another way to write ``--output json``."""
        if wanted:
            self.output = "json"

    @property
    def is_for_programs(self) -> bool:
        """Standard output has nothing but what was asked for."""
        return self.output in FOR_PROGRAMS

    @property
    def given_address(self) -> str | None:
        """None: a command finds the API without it."""
        return self.address if self.address != DEFAULT_ADDRESS else None

    @property
    def client(self) -> Client:
        """Opened at the first use; ``close`` closes it."""
        if self.open_client is None:
            from peloton.api.client import Patience

            self.open_client = self.connect(Patience(time.sleep, self._say_busy, time.monotonic, self.patience))
        return self.open_client

    def connect(self, patience: Patience | None = None) -> Client:
        """A client that the caller closes. Without ``patience`` it raises what a busy server answers."""
        from peloton.api import client

        given = {client.JOBMGR: self.jobmgr, client.RESMGR: self.resmgr, client.HOSTMGR: self.hostmgr}
        overrides = {service: without_scheme(address) for service, address in given.items() if address}
        address = without_scheme(self.address)
        return client.Client(address, timeout_s=self.timeout, overrides=overrides, patience=patience)

    def _say_busy(self, refusal: str) -> None:
        """Once, however often it is refused."""
        if not self.has_waited:
            echo(f"Peloton is busy: {refusal}. Waiting for at most {self.patience:g} s (--patience) ...", err=True)
        self.has_waited = True

    def close(self) -> None:
        if self.open_client is not None:
            self.open_client.close()


def without_scheme(addresses: str) -> str:
    """The original's addresses may be written as URLs; so may each of several."""
    each = (address.strip() for address in addresses.split(","))
    return ",".join(address.removeprefix("http://").removeprefix("grpc://").rstrip("/") for address in each)


pass_settings = click.make_pass_decorator(Settings)
