"""Starts jobs as a user would: by the command itself, whose words are shown before they are run."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from workbench.errors import FabricError, UsageError
from workbench.paths import Home

ENTRY: Final = "import sys; from fabric_workbench import main; sys.exit(main())"
DEADLINE_SECONDS: Final = 120.0
MANIFESTS: Final = ("*.yml", "*.yaml", "examples/*/manifest.yml", "*/manifest.yml")


def words_of(line: str) -> list[str]:
    """Split what was typed into words, as a shell does.

    Raises:
        UsageError: a quotation mark is not closed.
    """
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"these are no words of a command: {error}") from None


def manifests_here(most: int = 40) -> list[str]:
    """Name the manifests below the working directory, the nearest first."""
    found: dict[str, None] = {}
    for pattern in MANIFESTS:
        for path in sorted(Path.cwd().glob(pattern)):
            found.setdefault(str(path.relative_to(Path.cwd())))
            if len(found) >= most:
                return list(found)
    return list(found)


def call(home: Home, words: Sequence[str]) -> str:
    """Run ``fabric`` with these words to its end and return what it printed.

    Raises:
        FabricError: it refused; the message is its own.
    """
    environment = {**os.environ, "FABRIC_HOME": str(home.path), "NO_COLOR": "1", "COLUMNS": "100"}
    try:
        ran = subprocess.run(
            [sys.executable, "-c", ENTRY, *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DEADLINE_SECONDS,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        raise FabricError(
            f"fabric {words[0]} took longer than {DEADLINE_SECONDS:.0f} s and was ended"
        ) from None
    if ran.returncode:
        raise FabricError(ran.stderr.strip() or f"fabric {words[0]} ended with {ran.returncode}")
    return ran.stdout


def plan(home: Home, line: str) -> str:
    """Return what would be started."""
    return call(home, ["run", "--plan", *words_of(line)])


def start(home: Home, line: str) -> str:
    """Start a job and return its id."""
    return call(home, ["run", "--detach", *words_of(line)]).strip()


def start_again(home: Home, job_id: str) -> str:
    """Start a job again exactly as it was, and return the new one's id."""
    return call(home, ["rerun", "--detach", job_id]).strip()
