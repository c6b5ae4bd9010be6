"""A cluster of several users: files of tokens and roles, and clients that call as one of the users."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from peloton.access.caller import CallerKind
from peloton.access.tokens import RANDOM_BYTES, make_token
from peloton.client.credentials import TOKEN_FILE
from tests.e2e.forked import ForkedCluster
from tests.e2e.local import Cluster, temporary

ADMIN = "root"
"""The user as which the tests call."""
BINDING = """
[[binding]]
role = "{role}"
subjects = ["user:{user}"]
pools = ["{pool}"]
"""
Roles = Mapping[str, Mapping[str, str]]
"""The roles of each user by pool."""


@dataclass(frozen=True)
class People:
    """``tokens`` are those of all users, ``environment`` has the settings of all roles."""

    folder: Path
    tokens: Mapping[str, str]
    environment: Mapping[str, str]

    def file_of(self, user: str) -> Path:
        return self.folder / f"{user}.token"


def register(folder: Path, roles: Roles) -> People:
    """Write the files of a cluster with these users."""
    tokens, lines, bindings = {}, [], [BINDING.format(role="admin", user=ADMIN, pool="/")]
    for user in (ADMIN, *roles):
        random = os.urandom(RANDOM_BYTES)
        tokens[user], row = make_token(user, CallerKind.USER, (), 0.0, time.time(), random)
        lines.append(row.to_line())
        (folder / f"{user}.token").write_text(tokens[user])
        bindings += [BINDING.format(role=role, user=user, pool=pool) for pool, role in roles.get(user, {}).items()]
    (folder / "tokens").write_text("\n".join(lines))
    (folder / "roles.toml").write_text("".join(bindings))
    (folder / "role-token").write_text(secrets.token_hex(32))
    return People(
        folder,
        tokens,
        {
            "PELOTON_AUTH_TOKENS_FILE": str(folder / "tokens"),
            "PELOTON_AUTH_ROLES_FILE": str(folder / "roles.toml"),
            "PELOTON_AUTH_ROLE_TOKEN_FILE": str(folder / "role-token"),
        },
    )


@contextmanager
def cluster_of(people: People, web: bool = False, **environment: str) -> Iterator[Cluster]:
    """Run a cluster that asks for credentials; its own client is an administrator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cluster, "made_of", ForkedCluster)
        patch.setenv(TOKEN_FILE, str(people.file_of(ADMIN)))
        given = {**people.environment, **environment}
        with Cluster(temporary(people.folder / "data", web=web, environment=given)) as cluster:
            cluster.wait(lambda: cluster.capacity() > 0, "the capacity of the cluster")
            yield cluster
