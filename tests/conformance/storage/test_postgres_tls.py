"""Storage on a PostgreSQL that asks for certificates, by the parameters of its address."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from peloton.errors import Unavailable
from services.storage import migrate, schema_version
from services.storage.storage import Storage
from services.tls.authority import IssuedFiles, LocalAuthority
from tests.ports import free_ports
from tests.postgres import Postgres, server_user

FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin")
HBA = "local all all trust\nhostssl all all 127.0.0.1/32 cert\n"


def find_binaries() -> Path | None:
    """Return the folder of an installed server that can speak TLS; that of the wheel cannot."""
    for pattern in FOLDERS:
        for path in sorted(Path("/").glob(f"{pattern[1:]}/postgres"), reverse=True):
            if b"libssl" in path.read_bytes():
                return path.parent
    return None


class Secured:
    """A running server, and certificates of its authority."""

    def __init__(self, server: Postgres, port: str, authority: LocalAuthority) -> None:
        self._server, self._port, self.authority = server, port, authority

    def url(self, issued: IssuedFiles, ca_file: Path | None = None, mode: str = "verify-full") -> str:
        files = f"sslrootcert={ca_file or self.authority.ca_file}&sslcert={issued.cert}&sslkey={issued.key}"
        return f"postgresql+psycopg://postgres@127.0.0.1:{self._port}/postgres?sslmode={mode}&{files}"


@pytest.fixture(scope="module")
def database() -> Iterator[Secured]:
    bin_path = find_binaries()
    if bin_path is None:
        pytest.skip("no PostgreSQL with TLS is installed")
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder, port = Path(name), str(free_ports(1)[0])
        authority = LocalAuthority(folder / "authority", "test")
        issued = authority.issue("database", hosts=["127.0.0.1"])
        (folder / "hba").write_text(HBA)
        settings = {
            "port": port,
            "listen_addresses": "127.0.0.1",
            "hba_file": f"{folder}/hba",
            "ssl": "on",
            "ssl_ca_file": f"{folder}/ca.pem",
            "ssl_cert_file": f"{folder}/server.pem",
            "ssl_key_file": f"{folder}/server.key",
        }
        for source, name in ((authority.ca_file, "ca.pem"), (issued.cert, "server.pem"), (issued.key, "server.key")):
            shutil.copy(source, folder / name)
        server = start(bin_path, folder, settings)
        try:
            yield Secured(server, port, authority)
        finally:
            server.stop()


def start(bin_path: Path, folder: Path, settings: dict[str, str]) -> Postgres:
    """Start the server, as the owner of its files."""
    if user := server_user():
        for name in ("hba", "ca.pem", "server.pem", "server.key"):
            shutil.chown(folder / name, user)
    return Postgres(bin_path, folder, **settings)


def test_storage_works_with_certificates_of_both_sides(database: Secured) -> None:
    """The schema is made and read over TLS, and the server has seen the certificate of the client."""
    url = database.url(database.authority.issue("postgres"))
    migrate.upgrade(url)
    schema_version.check(url)
    storage = Storage(url)
    try:
        assert storage.leases.acquire("resmgr", "me", "h:1", 60.0, 0.0)
    finally:
        storage.close()
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        used = connection.execute(sa.text("select ssl, client_dn from pg_stat_ssl where pid = pg_backend_pid()")).one()
    engine.dispose()
    assert (True, "/CN=postgres") == tuple(used)


def test_other_certificates_are_refused(database: Secured, tmp_path: Path) -> None:
    """No TLS, the certificate of another user, and another authority on either side lead to no connection."""
    own, other = database.authority.issue("postgres"), LocalAuthority(tmp_path, "test")
    for url in (
        database.url(own, mode="disable"),
        database.url(database.authority.issue("ann")),
        database.url(other.issue("postgres")),
        database.url(own, ca_file=other.ca_file),
    ):
        with pytest.raises(Unavailable, match=r"(?i)ssl|certificate|pg_hba"):
            schema_version.check(url)
