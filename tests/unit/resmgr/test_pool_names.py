"""Names of pools have no control characters, and errors quote little of them."""

from __future__ import annotations

import pytest

from peloton.api.v0.respool import respool_pb2 as pb
from services.resmgr.server import ResmgrServer
from tests.unit.resmgr.test_server import Manager, create, delete, get, lookup, refusal, update
from tests.unit.resmgr.world import pool_config

HUGE = "n" * 5_000_000
BEGIN = "n" * 80
RULE = "control characters and characters that change the direction of text are not allowed"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (pool_config("x\x1b[31m", 0, 1), rf"resource pool name 'x\x1b[31m' contains \x1b (U+001B) at 1: {RULE}"),
        (pool_config("a\n", 0, 1), rf"resource pool name 'a\n' contains \x0a (U+000A) at 1: {RULE}"),
        (pool_config("a", 0, 1, owningTeam="\u202eb"), rf"owningTeam '\u202eb' contains \u202e (U+202E) at 0: {RULE}"),
        (pool_config("a", 0, 1, ldapGroups=["b", "\u2066"]),
         rf"ldapGroups '\u2066' contains \u2066 (U+2066) at 0: {RULE}"),
        (pool_config("a", 0, 1, description="b\n\a"), rf"description 'b\n\x07' contains \x07 (U+0007) at 2: {RULE}"),
    ],
)  # fmt: skip
async def test_texts_with_control_characters(
    manager: Manager, server: ResmgrServer, config: pb.ResourcePoolConfig, message: str
) -> None:
    """The error names the field and shows the character; force makes no difference."""
    pool = await create(manager, "p", 0, 1)

    assert message == await refusal(manager, config)
    for force in (False, True):
        assert message == (await update(manager, pool, config, force)).invalidResourcePoolConfig.message
    assert "p" == (await get(manager, pool)).poolinfo.config.name


async def test_letters_of_all_scripts(manager: Manager, server: ResmgrServer) -> None:
    """Names and descriptions of several lines are taken."""
    await create(manager, "東京", 0, 1)

    assert "" == await refusal(manager, pool_config("zürich", 0, 1, description="one\n\ttwo"))


async def test_huge_names(manager: Manager, server: ResmgrServer) -> None:
    """The answer has the beginning and the length of a rejected name, even where it repeats an id or a path."""
    answer = await manager.CreateResourcePool(pb.CreateRequest(config=pool_config(HUGE, 0, 1)))
    parent = await refusal(manager, pool_config("a", 0, 1, parent=HUGE))
    kind = await refusal(manager, pb.ResourcePoolConfig(resources=[pb.ResourceConfig(kind=HUGE)]))
    sizes = [
        each.ByteSize()
        for each in (
            answer,
            await delete(manager, f"/{HUGE}"),
            await lookup(manager, f"/{HUGE}"),
            await lookup(manager, HUGE),
            await get(manager, HUGE),
            await update(manager, HUGE, pool_config("a", 0, 1)),
        )
    ]

    assert "resource pool name has 5000000 characters, at most 255 are allowed" == (
        answer.error.invalidResourcePoolConfig.message
    )
    assert f"resource pool parent ID: {BEGIN}... (5,000,000 characters) not found" == parent
    assert kind.startswith(
        f"resource pool config has unknown resource type {BEGIN}... (5,000,000 characters) (there are "
    )
    assert [] == [size for size in sizes if size > 1_500]
