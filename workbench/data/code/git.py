"""Reads the git state of a folder of code: commit, branch, remote and uncommitted changes.

All of it is read-only and bounded in time. The remote's address is kept without the credentials that it may hold,
the changes without files that are credentials.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from workbench.data.code.credentials import is_credential, is_key, lies_in_credentials
from workbench.data.code.regular_file import read_beginning

DEADLINE_SECONDS: Final = 10.0
DIFF_BYTES_MAX: Final = 10_000_000

_HEAD_BYTES: Final = 4096
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]+@")
_DIFF: Final = ("diff", "--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--relative")
_DETACHED: Final = "(detached)"
_UNBORN: Final = "(initial)"


def describe(folder: Path, without: Collection[Path] = ()) -> dict[str, Any]:
    """Return ``commit``, ``branch``, ``dirty``, ``remote`` and ``diff`` of a folder; nothing outside git.

    ``diff`` is what ``git apply`` takes to get from the commit to the tracked files as they are; new files
    are in the snapshot of the code. ``diff_cut`` is true when it is longer than 10 MB and was cut. Changes of
    credentials (``.env``, private keys) and of the files ``without`` are not in it; ``diff_without`` names them.
    """
    git = _Git(folder)
    # What can be asked at the same time is: every start of git delays the job.
    asked = git.start("config", "--get", "remote.origin.url")
    status = git.run("status", "--porcelain=v2", "--branch", "--untracked-files=normal", "--", ".")
    remote = asked.output() or b""
    if status is None:
        return {}
    commit, branch, dirty = _read_status(status.decode("utf-8", "replace"))
    diff, left_out = _changes(git, folder, commit, without) if commit and dirty else (b"", [])
    described = {
        "commit": commit,
        "branch": branch,
        "dirty": dirty,
        "remote": _CREDENTIALS.sub("", remote.decode("utf-8", "replace").strip()),
        "diff": diff[:DIFF_BYTES_MAX].decode("utf-8", "replace"),
    }
    if left_out:
        described["diff_without"] = left_out
    return {**described, "diff_cut": True} if len(diff) > DIFF_BYTES_MAX else described


def _changes(git: _Git, folder: Path, commit: str, without: Collection[Path]) -> tuple[bytes, list[str]]:
    """Return the changes since a commit without those of credentials and some files, and the names of these."""
    asked = git.start(*_DIFF, commit, "--", ".")
    changed = git.run("diff", "--name-only", "-z", "--no-renames", "--relative", commit, "--", ".")
    diff = asked.output() or b""
    if changed is None:  # what could be a credential is not known
        return b"", []
    paths = [os.fsdecode(path) for path in changed.split(b"\0") if path]
    never = {os.path.realpath(path) for path in without}
    left_out = [
        path
        for path in paths
        if _is_credential(folder.absolute() / path) or os.path.realpath(folder / path) in never
    ]
    if left_out:
        excluded = [f":(exclude,literal){path}" for path in left_out]
        diff = git.run(*_DIFF, commit, "--", ".", *excluded) or b""
    return diff, left_out


def _is_credential(path: Path) -> bool:
    if is_credential(path.name, str(path.parent), is_folder=False) or lies_in_credentials(str(path.parent)):
        return True
    try:
        return is_key(path.name, read_beginning(str(path), _HEAD_BYTES))
    except OSError:
        return False  # deleted, or a folder or a pipe in its place: its old text is not looked at


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
        return self.start(*arguments).output()

    def start(self, *arguments: str) -> _Command:
        """Start a git command, whose output is read later."""
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
            process = subprocess.Popen(
                argv,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except (OSError, ValueError):
            return _Command(None, self._ends)
        return _Command(process, self._ends)


class _Command:
    """A git command that was started; None where that failed."""

    def __init__(self, process: subprocess.Popen[bytes] | None, ends: float) -> None:
        self._process = process
        self._ends = ends

    def output(self) -> bytes | None:
        """Wait for its end and return what it printed; None when it failed or took too long."""
        if self._process is None:
            return None
        with self._process as process:
            try:
                found, _ = process.communicate(timeout=max(0.1, self._ends - time.monotonic()))
            except (OSError, ValueError, subprocess.TimeoutExpired):
                process.kill()
                return None
        return found if process.returncode == 0 else None
