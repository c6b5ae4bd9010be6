"""The values of the global options, and the client that they lead to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from cli.terminal import echo

if TYPE_CHECKING:
    from peloton.client import Client, RetryPolicy
    from peloton.client.services import Metadata

DEFAULT_ADDRESS = "localhost:5397"
FOR_PROGRAMS = ("json", "yaml", "name")
FORMATS = ("table", "wide", *FOR_PROGRAMS)


@dataclass
class Settings:
    """The values of the global options, set by the root command, and by the same options after a sub-command's name."""

    output: str = ""  # one of FORMATS; empty: the command's own
    address: str = DEFAULT_ADDRESS
    jobmgr: str | None = None
    resmgr: str | None = None
    hostmgr: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
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
        """Set ``--output json``, of which ``--json`` is another spelling."""
        if wanted:
            self.output = "json"

    @property
    def is_for_programs(self) -> bool:
        """Return whether standard output is for programs, and must have nothing but the result."""
        return self.output in FOR_PROGRAMS

    @property
    def given_address(self) -> str | None:
        """Return the address; None: a command finds the API without it."""
        return self.address if self.address != DEFAULT_ADDRESS else None

    @property
    def client(self) -> Client:
        """Return the client, opened at its first use; ``close`` closes it."""
        if self.open_client is None:
            from peloton.client import RetryPolicy

            self.open_client = self.connect(RetryPolicy(self.patience, away_s=0, say=self._say_busy))
        return self.open_client

    def connect(self, retry: RetryPolicy | None = None, metadata: Metadata | None = None) -> Client:
        """Return a client that the caller closes. Without ``retry`` it raises each error at once.

        ``metadata`` returns the headers of its calls; without it they have the credentials of the user.
        """
        from peloton import client

        given = {client.JOBMGR: self.jobmgr, client.RESMGR: self.resmgr, client.HOSTMGR: self.hostmgr}
        overrides = {service: without_scheme(address) for service, address in given.items() if address}
        address, tls = without_scheme(self.address), None
        if self.ca_file or self.cert_file:
            files = (self.ca_file, self.cert_file, self.key_file, self.server_name)
            tls = client.Tls(*(given or "" for given in files))
        return client.Client(
            address,
            timeout_s=self.timeout,
            overrides=overrides,
            retry=retry or client.NO_RETRIES,
            tls=tls,
            metadata=metadata,
        )

    def _say_busy(self, refusal: str) -> None:
        """Print once that the API is busy, however often it refuses."""
        if not self.has_waited:
            echo(f"Peloton is busy: {refusal}. Waiting for at most {self.patience:g} s (--patience) ...", err=True)
        self.has_waited = True

    def close(self) -> None:
        if self.open_client is not None:
            self.open_client.close()


def without_scheme(addresses: str) -> str:
    """Return addresses without their scheme: like the original's, each of them may be a URL."""
    each = (address.strip() for address in addresses.split(","))
    return ",".join(address.removeprefix("http://").removeprefix("grpc://").rstrip("/") for address in each)


pass_settings = click.make_pass_decorator(Settings)
