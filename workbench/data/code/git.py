"""Reads the git state of a folder of code: commit, branch, remote and uncommitted changes.

All of it is read-only and bounded in time; the remote's address is kept without the credentials that it may
hold.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any, Final

DEADLINE_SECONDS: Final = 10.0
DIFF_BYTES_MAX: Final = 10_000_000

_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]+@")
_DIFF: Final = ("diff", "--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--relative")
_DETACHED: Final = "(detached)"
_UNBORN: Final = "(initial)"


def describe(folder: Path) -> dict[str, Any]:
    """Return ``commit``, ``branch``, ``dirty``, ``remote`` and ``diff`` of a folder; nothing outside git.

    ``diff`` is what ``git apply`` takes to get from the commit to the tracked files as they are; new files
    are in the snapshot of the code. ``diff_cut`` is true when it is longer than 10 MB and was cut.
    """
    git = _Git(folder)
    status = git.run("status", "--porcelain=v2", "--branch", "--untracked-files=normal", "--", ".")
    if status is None:
        return {}
    commit, branch, dirty = _read_status(status.decode("utf-8", "replace"))
    remote = git.run("config", "--get", "remote.origin.url") or b""
    diff = (git.run(*_DIFF, commit, "--", ".") or b"") if commit and dirty else b""
    described = {
        "commit": commit,
        "branch": branch,
        "dirty": dirty,
        "remote": _CREDENTIALS.sub("", remote.decode("utf-8", "replace").strip()),
        "diff": diff[:DIFF_BYTES_MAX].decode("utf-8", "replace"),
    }
    return {**described, "diff_cut": True} if len(diff) > DIFF_BYTES_MAX else described


def _read_status(text: str) -> tuple[str, str, bool]:
    commit = branch = ""
    dirty = False
    for line in text.splitlines():
        if line.startswith("# branch.oid "):
            commit = line.removeprefix("# branch.oid ").replace(_UNBORN, "")
        elif line.startswith("# branch.head "):
            branch = line.removeprefix("# branch.head ").replace(_DETACHED, "")
        elif not line.startswith("#"):
            dirty = True
    return commit, branch, dirty


class _Git:
    """Runs git in a folder until the time is over."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ends = time.monotonic() + DEADLINE_SECONDS
        # Nothing may ask, take a lock that an editor waits for, or answer in another language.
        self._environment = {
            **os.environ,
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C",
        }

    def run(self, *arguments: str) -> bytes | None:
        """Return what a git command printed, or None when it failed, took too long or there is no git."""
        argv = [
            "git",
            "-C",
            str(self._folder),
            "-c",
            "core.fsmonitor=false",
            "-c",
            "core.quotePath=true",
            *arguments,
        ]
        try:
            done = subprocess.run(
                argv,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=max(0.1, self._ends - time.monotonic()),
                check=False,
            )
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None
