"""Peloton as a client of an OIDC issuer, at which viewers of the pages sign in."""

from __future__ import annotations

from dataclasses import dataclass

from peloton.issuer import Flow, discover


@dataclass(frozen=True)
class OidcClient:
    """Peloton at its issuer. Methods block, and raise Unavailable, Unauthenticated."""

    issuer: str
    client_id: str
    secret: str = ""
    ca_file: str = ""

    def begin(self, callback: str) -> tuple[Flow, str]:
        """Return a new flow, which the viewer's browser keeps, and the address at the issuer."""
        return discover(self.issuer, self.ca_file).begin(self.client_id, callback)

    def finish(self, flow: Flow, code: str, callback: str) -> str:
        """Exchange the code for the token of the viewer."""
        return discover(self.issuer, self.ca_file).finish(flow, self.client_id, code, callback, self.secret).id_token
