"""Commands and groups: loaded at their first use, with global options anywhere, and errors as one line."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NamedTuple, cast

import click

from cli.errors import failure
from cli.names import resolve_names
from cli.params import DURATION
from cli.settings import DEFAULT_ADDRESS, FORMATS, Settings
from cli.terminal import echo

HELP_OPTIONS = ["-h", "--help"]


def global_options(defaults: bool) -> list[click.Option]:
    """Return the options of every command.

    After a sub-command's name they have no defaults, and override when they are given.
    """

    def option(
        *names: str, default: Any = None, envvar: str | list[str] | None = None, **attributes: Any
    ) -> click.Option:
        if defaults:
            return click.Option(names, default=default, envvar=envvar, show_envvar=bool(envvar), **attributes)
        return click.Option(names, default=None, hidden=True, expose_value=False, callback=note_given, **attributes)

    return [
        option("--output", "-o", type=click.Choice(FORMATS),
               help="The format; each command has a default. name: ids or names alone, one per line."),
        option("--json", "-j", is_flag=True, default=False, help="Print whole answers: the same as --output json."),
        option("--address", "-a", metavar="HOST:PORT", default=DEFAULT_ADDRESS, envvar="PELOTON_ADDRESS",
               show_default=True, help="The address of the Peloton API."),
        option("--jobmgr", "-m", metavar="HOST:PORT", envvar=["PELOTON_JOBMGR_URL", "JOBMGR_URL"],
               help="Send calls about jobs here instead."),
        option("--resmgr", "-v", metavar="HOST:PORT", envvar=["PELOTON_RESMGR_URL", "RESMGR_URL"],
               help="Send calls about pools here instead."),
        option("--hostmgr", "-u", metavar="HOST:PORT", envvar=["PELOTON_HOSTMGR_URL", "HOSTMGR_URL"],
               help="Send calls about hosts here instead."),
        option("--ca-file", metavar="FILE", envvar="PELOTON_API_CA_FILE",
               help="PEM file of the authorities that sign the certificate of the API; with it calls use TLS."),
        option("--cert-file", metavar="FILE", envvar="PELOTON_API_CERT_FILE",
               help="PEM file of your certificate, and of its key unless that has a file."),
        option("--key-file", metavar="FILE", envvar="PELOTON_API_KEY_FILE", help="PEM file of its key."),
        option("--server-name", metavar="NAME", envvar="PELOTON_API_SERVER_NAME",
               help="The name that the certificate of the API must have, if it is not that of the address."),
        option("--timeout", "-t", type=DURATION, default="20s", envvar="PELOTON_TIMEOUT", show_default=True,
               help="Timeout of one call."),
        option("--patience", type=DURATION, default="60s", show_default=True,
               help="Time for which a call is retried while Peloton is overloaded."),
        option("--debug", is_flag=True, default=False, help="Show the stack trace of a failure."),
    ]  # fmt: skip


def note_given(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    settings = ctx.find_object(Settings)
    if settings is not None and param.name and ctx.get_parameter_source(param.name) is not None and value is not None:
        setattr(settings, param.name, value)


class Command(click.Command):
    """A command with the global options, except where one of its own has the same spelling (``-a`` of ``job
    query``)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.context_settings.setdefault("help_option_names", HELP_OPTIONS)
        taken = {name for param in self.params for name in param.opts}
        for option in global_options(defaults=False):
            option.opts = [name for name in option.opts if name not in taken]
            if option.opts:
                self.params.append(option)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.with_output_written_out(args))

    def with_output_written_out(self, args: list[str]) -> list[str]:
        """Return the arguments with ``-o FORMAT`` of queries written as ``--output``.

        Alone ``-o`` is the original's ``--offset`` there, which takes a number; the name of a format is none.
        """
        is_taken = any("-o" in param.opts and "--output" not in param.opts for param in self.params)
        pairs = zip(args, [*args, ""][1:], strict=True)
        return ["--output" if is_taken and word == "-o" and after in FORMATS else word for word, after in pairs]

    def invoke(self, ctx: click.Context) -> Any:
        resolve_names(ctx)
        return super().invoke(ctx)


class Group(click.Group):
    """A noun with its verbs."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.context_settings.setdefault("help_option_names", HELP_OPTIONS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        return super().get_command(ctx, "list") if found is None and cmd_name == "ls" else found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=self.list_commands(ctx), ctx=ctx
            ) from None


def verb_commands(
    texts: Mapping[str, str], example: str = "", group: click.Group | None = None
) -> Callable[[Callable[..., None]], dict[str, click.Command]]:
    """Make a command of each verb, with its help text; the function takes the verb as ``verb``.

    ``example``: a command line with ``{verb}`` for each help text. The commands are added to ``group``.
    """

    def decorate(function: Callable[..., None]) -> dict[str, click.Command]:
        def command_of(verb: str, text: str) -> click.Command:
            @wraps(function)
            def act(*args: Any, **given: Any) -> None:
                function(*args, verb=verb, **given)

            vars(act)["__click_params__"] = list(getattr(function, "__click_params__", ()))  # click empties the list
            shown = f"\n\n\b\nExample:\n  peloton {example.format(verb=verb)}" if example else ""
            return click.command(verb, cls=Command, help=f"{text}{shown}")(act)

        commands = {verb: command_of(verb, text) for verb, text in texts.items()}
        if group is not None:
            for command in commands.values():
                group.add_command(command)
        return commands

    return decorate


class VerbsAndCommand(Group, Command):
    """A noun with its verbs that is a command by itself, too."""


class Entry(NamedTuple):
    """The module and attribute of a command, and its short help, shown by its parent without loading it."""

    module: str
    attribute: str
    short_help: str = ""
    """Empty: an old name of a command, which is not listed."""


class LazyGroup(Group):
    """A group that imports a command's module when the command is used; its short help is known without."""

    def __init__(self, *args: Any, entries: Mapping[str, Entry], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.entries = dict(entries)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*(name for name, entry in self.entries.items() if entry.short_help), *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return super().get_command(ctx, cmd_name)
        return cast(click.Command, getattr(importlib.import_module(entry.module), entry.attribute))

    def is_installed(self, name: str) -> bool:
        return name not in self.entries or importlib.util.find_spec(self.entries[name].module) is not None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown = [(name, entry.short_help) for name, entry in self.entries.items() if entry.short_help]
        rows = [(name, text) for name, text in shown if self.is_installed(name)]
        rows += [(name, command.get_short_help_str(80)) for name, command in sorted(self.commands.items())]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


INTERRUPTED = 130
"""The exit code of a process that ended by SIGINT, as in shells."""


class Root(LazyGroup):
    """The root group: it ends every failure as one line on stderr and an exit code; stack traces only with
    ``--debug``."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # Click itself would call it a failure: 1
            echo(err=True)
            ctx.exit(INTERRUPTED)
        except Exception as error:
            settings = ctx.find_object(Settings)
            shown = failure(error, settings)
            if shown is error or (settings and settings.debug):
                raise
            raise shown from error
