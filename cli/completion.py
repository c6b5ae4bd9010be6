"""``peloton completion``: the script that makes a shell complete commands, options, pool paths and states."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from cli.command import Command
from cli.terminal import echo


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Examples:
      peloton completion bash > ~/.local/share/bash-completion/completions/peloton
      eval "$(peloton completion zsh)"
      peloton completion fish > ~/.config/fish/completions/peloton.fish
    """
    found = get_completion_class(shell)
    assert found is not None, shell
    echo(found(ctx.find_root().command, {}, "peloton", "_PELOTON_COMPLETE").source())
