"""Commands whose script is made for Determined's Core API: their job is an experiment that no file describes.

Only a command of ``fabric run -- COMMAND`` is looked at: a manifest says itself what its job is.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workbench.learner.determined_jobs import CONFIG_VARIABLE, UNMANAGED

if TYPE_CHECKING:
    import ast

    from workbench.manifest import Loaded
    from workbench.spec import JobSpec

SCRIPT_BYTES_MAX: Final = 1 << 18
"""A larger file is hardly a script, and reading it would make each submission slow."""
SCRIPTS_MAX: Final = 8
"""So many of a command's files are looked at."""
PACKAGE: Final = "determined"
SECOND_CORE: Final = "determined.experimental.core_v2"
_OWN_PARTS: Final = (
    "determined.core", "determined.launch", SECOND_CORE, "determined.ClusterInfo", "determined.InvalidHP",
    "determined.LOG_FORMAT", "determined.TrialInfo", "determined.get_cluster_info",
)  # fmt: skip
"""What a job has of Determined without its wheel."""
_LAUNCHERS: Final = "determined.launch."


def as_experiment(loaded: Loaded, code: Path | None) -> tuple[Loaded, tuple[str, ...]]:
    """Return the job of a command as one of an experiment, if its script is made for one, and a note that says so.

    The variable that holds an experiment decides where the user gives it: an empty one is none.

    Args:
        loaded: the job of a command.
        code: the folder of its code; None where it has none.
    """
    spec = loaded.spec
    if CONFIG_VARIABLE in spec.env or CONFIG_VARIABLE in spec.secrets:
        if spec.env.get(CONFIG_VARIABLE, "-"):
            return loaded, ()
        env = {name: value for name, value in spec.env.items() if name != CONFIG_VARIABLE}
        return replace(loaded, spec=replace(spec, env=env)), ()
    found = _maker(spec.framework.command, code) if code is not None and code.is_dir() else ""
    if not found:
        return loaded, ()
    origins = {key: origin for key, origin in loaded.origins.items() if key != "env"}
    origins[f"env.{CONFIG_VARIABLE}"] = found
    env = {**spec.env, CONFIG_VARIABLE: _config(spec)}
    note = (
        f"{found} is made for Determined's Core API: the job is an experiment"
        f" (-e {CONFIG_VARIABLE}= leaves that out)"
    )
    return replace(loaded, spec=replace(spec, env=env), origins=origins), (note,)


def _config(spec: JobSpec) -> str:
    """Return the experiment of a command. It has no metric: nobody has said by which one checkpoints are the best."""
    config = {
        "name": spec.name,
        "entrypoint": spec.framework.command,
        "hyperparameters": {},
        "searcher": {"name": "single"},
        UNMANAGED: True,
    }
    return json.dumps(config)


def _maker(command: str, code: Path) -> str:
    """Return what of a command is made for the Core API: a script of the code, or Determined's launcher."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    for before, word in itertools.pairwise(words):
        if before == "-m" and word.startswith(_LAUNCHERS):
            return word
    scripts = list(_scripts(words, code))[:SCRIPTS_MAX]
    return next((name for name, path in scripts if _is_for_core_api(path)), "")


def _scripts(words: list[str], code: Path) -> Iterator[tuple[str, Path]]:
    """Yield the scripts that a command names, or the modules after ``-m``, as far as they lie in its code."""
    root = code.absolute()
    for before, word in itertools.pairwise(["", *words]):
        names = [word] if word.endswith(".py") else []
        if before == "-m":
            module = word.replace(".", "/")
            names = [f"{module}.py", f"{module}/__main__.py"]
        for name in names:
            path = Path(os.path.normpath(root / name))
            # A word may be anything: Path.is_file() raises for one that is too long for a name.
            if path.is_relative_to(os.path.normpath(root)) and os.path.isfile(path):  # noqa: PTH113
                yield name, path


def _is_for_core_api(script: Path) -> bool:
    """Return whether a script imports the Core API, and nothing else of Determined.

    One that imports more, such as Trial classes, runs without a cluster by its own means; with ``core_v2`` it cannot.
    """
    try:
        if script.stat().st_size > SCRIPT_BYTES_MAX:
            return False
        source = script.read_bytes()
        if PACKAGE.encode() not in source:
            return False
        import ast  # most commands need none, and each submission would wait for it

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are about the user's code, which is not run here
            imported = set(_imports(ast.parse(source)))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    has_second = any(_is_within(name, SECOND_CORE) for name in imported)
    return has_second or (bool(imported) and all(map(_is_own, imported)))


def _imports(tree: ast.Module) -> Iterator[str]:
    """Yield what a script imports of Determined, with dots: ``determined``, ``determined.core.init``."""
    import ast  # as above

    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name for name in names if name.partition(".")[0] == PACKAGE)


def _is_own(name: str) -> bool:
    """Return whether a job has this without Determined's wheel."""
    return name in (PACKAGE, f"{PACKAGE}.*") or any(_is_within(name, part) for part in _OWN_PARTS)


def _is_within(name: str, part: str) -> bool:
    return f"{name}.".startswith(f"{part}.")
