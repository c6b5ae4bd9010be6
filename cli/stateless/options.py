"""Arguments and options that several commands of services share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from cli.params import CONFIG_FILE, COUNT, POOL_PATH, together


class PoolOrOther(click.ParamType[str]):
    """A word that may be the path of a pool, which is completed, or a file."""

    name = "WORD"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        pools = POOL_PATH.shell_complete(ctx, param, incomplete) if incomplete.startswith("/") else []
        return pools or [CompletionItem(incomplete, type="file")]


class CreateWords(NamedTuple):
    pool: str  # empty: the pool of the spec
    spec: Path
    batch_size: int


def create_words(ctx: click.Context, param: click.Parameter, words: Sequence[str]) -> CreateWords:
    """Parse ``[RESPOOL] SPEC [BATCH-SIZE]``, distinguished by their number; a batch size is a number."""
    rest = list(words)
    batch_size = COUNT.convert(rest.pop(), param, ctx) if len(rest) > 1 and is_number(rest[-1]) else 0
    if len(rest) not in (1, 2):
        raise click.UsageError(f"expected {param.make_metavar(ctx)}, got '{' '.join(words)}'", ctx)
    spec: Path = CONFIG_FILE.convert(rest.pop(), param, ctx)
    return CreateWords(POOL_PATH.convert(rest[0], param, ctx) if rest else "", spec, batch_size)


class PlaceWords(NamedTuple):
    pool: str  # empty: the pool of the spec, otherwise the job's
    version: str  # empty: the current one


def place_words(ctx: click.Context, param: click.Parameter, words: Sequence[str]) -> PlaceWords:
    """Parse ``[RESPOOL] [ENTITY-VERSION]``: a path begins with a slash."""
    pools = [POOL_PATH.convert(word, param, ctx) for word in words if word.startswith("/")]
    versions = [word for word in words if not word.startswith("/")]
    if len(pools) > 1 or len(versions) > 1:
        raise click.UsageError(f"expected {param.make_metavar(ctx)}, got '{' '.join(words)}'", ctx)
    return PlaceWords(pools[0] if pools else "", versions[0] if versions else "")


class RollbackWords(NamedTuple):
    batch_size: int | None
    version: str  # empty: the one before the current one


def rollback_words(ctx: click.Context, param: click.Parameter, words: Sequence[str]) -> RollbackWords:
    """Parse ``[BATCH-SIZE] [ENTITY-VERSION]``: a batch size is a number, and an entity version is not."""
    sizes = [COUNT.convert(word, param, ctx) for word in words if is_number(word)]
    versions = [word for word in words if not is_number(word)]
    if len(sizes) > 1 or len(versions) > 1:
        raise click.UsageError(f"expected {param.make_metavar(ctx)}, got '{' '.join(words)}'", ctx)
    return RollbackWords(sizes[0] if sizes else None, versions[0] if versions else "")


def is_number(word: str) -> bool:
    return word.isascii() and word.isdigit()


def done_word(verb: str) -> str:
    """Return the participle of ``pause``, ``resume`` and ``abort``."""
    return f"{verb.removesuffix('e')}ed"


def words_argument(metavar: str, callback: Callable[..., Any], required: bool = False) -> Callable[[Any], Any]:
    return click.argument("words", metavar=metavar, nargs=-1, required=required, type=PoolOrOther(), callback=callback)


spec_argument = click.argument("spec", type=CONFIG_FILE)
batch_size_argument = click.argument("batch_size", metavar="BATCH-SIZE", type=COUNT)
version_argument = click.argument("version", metavar="[ENTITY-VERSION]", default="")
watch_option = click.option("--watch", is_flag=True, help="Show progress until the end; exit code 0 only on success.")
opaque_option = click.option("--opaque-data", "opaque", metavar="TEXT", help="A note to keep with the update.")
key_option = click.option(
    "--update-key",
    default="",
    metavar="TEXT",
    help="An idempotency key: a call repeated with the same key creates no second update.",
)
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
diff_option = click.option("--diff", is_flag=True, help="First show what would change; on a terminal, ask.")

# The names of these parameters are fields of v1alpha's CreateSpec and UpdateSpec.
failure_options = together(
    click.option("--maxInstanceRetries", "max_instance_retries", type=COUNT, default=0,
                 show_default=True, help="Failures after which an instance counts as failed; 0: never."),
    click.option("--maxTolerableInstanceFailures", "max_tolerable_instance_failures",
                 type=COUNT, default=0, show_default=True,
                 help="Failed instances at which the whole update fails; 0: never."),
    click.option("--start-paused", is_flag=True, help="Start the update paused, until it is resumed."),
    click.option("--pulse-seconds", type=COUNT, default=0, show_default=True,
                 help="Start new instances only within N seconds after a pulse; 0: without pulses."),
    click.option("--progress-deadline-seconds", type=COUNT, default=0, show_default=True,
                 help="Show the update as stalled when no pod became healthy for N seconds; 0: 600."),
)  # fmt: skip
placement_options = together(
    click.option("--in-place", is_flag=True, help="Start each instance on its previous host again."),
    click.option("--start-pods", is_flag=True, help="Start instances that were stopped."),
)
