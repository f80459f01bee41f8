"""``fabric completion``, and what a shell calls to complete a word."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from workbench.cli.framework import registry
from workbench.cli.framework.declare import command, new_app
from workbench.cli.framework.main import COMPLETE_VARIABLE

SHELLS = ("bash", "zsh", "fish")

Shell = Annotated[str, typer.Argument(metavar="[SHELL]", help="bash, zsh or fish; else the one of $SHELL.")]


@command("completion", "fabric completion bash", "fabric completion zsh > ~/.zfunc/_fabric")
def completion(shell: Shell = "") -> None:
    """Print a shell's completion script.

    bash: add `eval "$(fabric completion bash)"` to ~/.bashrc. zsh: write it to a file `_fabric` in a folder
    of $fpath. fish: write it to ~/.config/fish/completions/fabric.fish.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined] # Typer has no other door

    from workbench.errors import UnknownName

    wanted = shell or os.path.basename(os.environ.get("SHELL", ""))  # noqa: PTH119 - a name, no file
    if wanted not in SHELLS:
        raise UnknownName(
            f"there is no completion for the shell '{wanted}'", hint=f"there is for {', '.join(SHELLS)}"
        )
    script = get_completion_script(prog_name=registry.PROGRAM, complete_var=COMPLETE_VARIABLE, shell=wanted)
    sys.stdout.write(script.strip() + "\n")


def whole_app() -> typer.Typer:
    """Return an app that holds every command, for completion and for the documentation."""
    from workbench.cli.framework.dispatch import load

    app = new_app()
    for entry in registry.ENTRIES:
        target = load(entry)
        target.add_to(app)
        for alias in entry.aliases:
            target.add_to(app, alias)
    return app


def complete(variable: str) -> int:
    """Answer a shell that asks, by the environment, what a word may become."""
    from typer.completion import completion_init  # type: ignore[attr-defined] # Typer has no other door
    from typer.main import get_command

    completion_init()
    try:
        get_command(whole_app()).main(args=[], prog_name=registry.PROGRAM, complete_var=variable)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    return 0
