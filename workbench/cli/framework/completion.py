"""``fabric completion``, and what a shell calls to complete a word."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from workbench.cli.framework import registry
from workbench.cli.framework.declare import command, new_app
from workbench.cli.framework.registry import COMPLETE_VARIABLE

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

    chosen = shell or os.path.basename(os.environ.get("SHELL", ""))  # noqa: PTH119 - a name, no file
    if chosen not in SHELLS:
        raise UnknownName(
            f"there is no completion for the shell '{chosen}'", hint=f"there is for {', '.join(SHELLS)}"
        )
    script = get_completion_script(prog_name=registry.PROGRAM, complete_var=COMPLETE_VARIABLE, shell=chosen)
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


LIMIT = 50


def job_names(incomplete: str) -> list[tuple[str, str]]:
    """Complete ids and names of the newest jobs."""
    return _job_names(incomplete, only_open=False)


def open_job_names(incomplete: str) -> list[tuple[str, str]]:
    """Complete ids and names of jobs that have not ended."""
    return _job_names(incomplete, only_open=True)


def job_and_search_names(incomplete: str) -> list[tuple[str, str]]:
    """Complete ids and names of the newest jobs and searches."""
    return job_names(incomplete) + _search_names(incomplete, only_open=False)


def open_job_and_search_names(incomplete: str) -> list[tuple[str, str]]:
    """Complete ids and names of jobs and searches that are not over."""
    return open_job_names(incomplete) + _search_names(incomplete, only_open=True)


def _search_names(incomplete: str, *, only_open: bool) -> list[tuple[str, str]]:
    try:
        from workbench.services.open_store import existing_store
        from workbench.store.queries.experiments import experiments, short_experiment_id

        with existing_store(attends=False) as store:
            rows = [] if store is None else experiments(store, only_open=only_open)[:LIMIT]
    except Exception:  # anything at all: a shell is waiting
        return []
    names = [(short_experiment_id(row.id), f"search, {row.state} {row.name}") for row in rows]
    names += [(row.name, f"search, {row.state} {short_experiment_id(row.id)}") for row in rows]
    return [name for name in names if name[0].startswith(incomplete)]


def _job_names(incomplete: str, *, only_open: bool) -> list[tuple[str, str]]:
    try:
        from workbench.job import short_id
        from workbench.services.open_store import existing_store
        from workbench.store.queries.jobs import list_jobs, open_jobs

        with existing_store(attends=False) as store:
            if store is None:
                rows = []
            else:
                rows = open_jobs(store)[: -LIMIT - 1 : -1] if only_open else list_jobs(store, limit=LIMIT)
    except Exception:  # anything at all: a shell is waiting
        return []
    names = [(short_id(row.id), f"{row.state} {row.name}") for row in rows]
    names += [(row.name, f"{row.state} {short_id(row.id)}") for row in rows]
    return [name for name in (*names, ("@last", "the job submitted last")) if name[0].startswith(incomplete)]


def job_refs(incomplete: str) -> list[tuple[str, str]]:
    """Complete a job that another comes after, and what of it is waited for."""
    name, colon, mode = incomplete.rpartition(":")
    if not colon:
        return job_names(incomplete)
    modes = {"completed": "when it has completed", "ended": "however it ends"}
    return [(f"{name}:{each}", help_) for each, help_ in modes.items() if each.startswith(mode)]


def backend_names(incomplete: str) -> list[str]:
    """Complete the backends that the configuration names."""
    try:
        from workbench.config import load_config

        names = ["local", *load_config().backends]
    except Exception:  # anything at all: a shell is waiting
        return []
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def several_backend_names(incomplete: str) -> list[str]:
    """Complete the last one of several backends, which the configuration names, with commas or plus signs between."""
    last = incomplete.replace("+", ",").rpartition(",")[2]
    before = incomplete[: len(incomplete) - len(last)]
    known = before.replace("+", ",").split(",")
    return [before + name for name in backend_names(last) if name not in known]


def runner_names(incomplete: str) -> list[str]:
    """Complete the runners that are installed."""
    try:
        from workbench.services.backends.installed import runner_names as installed

        names = sorted(installed())
    except Exception:  # anything at all: a shell is waiting
        return []
    return [name for name in names if name.startswith(incomplete)]


def state_names(incomplete: str) -> list[str]:
    """Complete the last of the states of jobs."""
    from workbench.job import State

    before, comma, last = incomplete.rpartition(",")
    names = ("open", *(state.lower() for state in State))
    return [f"{before}{comma}{name}" for name in names if name.startswith(last.lower())]


def manifest_keys(incomplete: str) -> list[str]:
    """Complete the keys that ``--set`` takes; those of ``framework`` with what is above them."""
    try:
        from workbench.manifest.keys.framework_keys import FRAMEWORK
        from workbench.manifest.keys.root import MANIFEST

        names = [*(f"{name}=" for name in MANIFEST.known() if name not in _MAPS), *_MAPS.values()]
        names += [f"framework.{name}=" for name in FRAMEWORK.known()]
    except Exception:  # anything at all: a shell is waiting
        return []
    return [name for name in names if name.startswith(incomplete)]


def changeable_keys(incomplete: str) -> list[str]:
    """Complete the keys that ``resume --set`` takes."""
    return [name for name in ("params.", "env.") if name.startswith(incomplete)]


_MAPS = {name: f"{name}." for name in ("params", "env", "labels", "framework")}
"""Keys of a manifest with keys of the user's, or further ones, below them."""


def profile_names(incomplete: str) -> list[str]:
    """Complete the profiles of the configuration."""
    try:
        from workbench.config import load_config

        names = list(load_config().profiles)
    except Exception:  # anything at all: a shell is waiting
        return []
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def template_names(incomplete: str) -> list[str]:
    """Complete the templates of the project and of the user."""
    try:
        from workbench.config.templates import templates

        names = sorted(templates())
    except Exception:  # anything at all: a shell is waiting
        return []
    return [name for name in names if name.startswith(incomplete)]


def config_keys(incomplete: str) -> list[str]:
    """Complete keys of the configuration: those that are set, and those that may be."""
    try:
        from workbench.config import RUN_OPTIONS, load_config
        from workbench.config.code import KEYS as CODE_KEYS
        from workbench.config.model import RETENTION
        from workbench.manifest.keys.root import MANIFEST

        names = [f"defaults.{name}" for name in (*MANIFEST.known(), *RUN_OPTIONS)]
        names += [f"retention.{name}" for name in RETENTION]
        names += ["data.cache", *(f"code.{name}" for name in CODE_KEYS)]
        names += list(load_config().origins)
    except Exception:  # anything at all: a shell is waiting
        return []
    return [name for name in sorted(set(names)) if name.startswith(incomplete)]


def metric_names(incomplete: str) -> list[str]:
    """Complete names of metrics that some job has."""
    try:
        from workbench.services.open_store import existing_store
        from workbench.store.queries.job_list import known_metrics

        with existing_store(attends=False) as store:
            names = known_metrics(store) if store else []
    except Exception:  # anything at all: a shell is waiting
        return []
    return [name for name in names if name.startswith(incomplete)]


def sort_names(incomplete: str) -> list[str]:
    """Complete what jobs can be sorted by, with the `-` that turns an order round."""
    try:
        from workbench.store.queries.job_fields import sort_keys

        names = dict.fromkeys([*sort_keys(), *metric_names("")])
    except Exception:  # anything at all: a shell is waiting
        return []
    sign = "-" if incomplete.startswith("-") else ""
    return [sign + name for name in names if (sign + name).startswith(incomplete)]


def column_names(incomplete: str) -> list[str]:
    """Complete the last column of a list of them."""
    try:
        from workbench.services.inspect.list_columns import column_names as known

        before, comma, last = incomplete.rpartition(",")
        names = [*known(), *metric_names("")]
    except Exception:  # anything at all: a shell is waiting
        return []
    found = [name for name in dict.fromkeys(names) if name.startswith(last.removeprefix("+"))]
    plus = "+" if last.startswith("+") else ""
    return [f"{before}{comma}{plus}{name}" for name in found]


def where_terms(incomplete: str) -> list[str]:
    """Complete the last term of a filter: fields and their values, and names of metrics."""
    try:
        from workbench.services.filters import complete_filter, filter_words
        from workbench.services.open_store import existing_store
        from workbench.store.queries.job_list import known_metrics, known_values

        with existing_store(attends=False) as store:
            metrics = known_metrics(store) if store else []
            values = known_values(store) if store else {}
        values["backend"] = [*backend_names(""), *values.get("backend", ())]
        return complete_filter(incomplete, filter_words(metrics, values))
    except Exception:  # anything at all: a shell is waiting
        return []
