"""The attempts that wait, in files, for the waiter after a restart of the machine, or after this one was killed.

Nothing is kept unless the home's owner wanted that: ``resume.sh`` in the home's folder is the switch, and what their
systemd, or their crontab, runs when the machine has started. The waiter writes itself into it. Values of secrets are
kept where the backend says ``secrets_at_host`` alone; without them an attempt that needs some waits for its laptop.

A kept ticket is good for the launch documents that it was handed over with: whoever launches the attempt anew writes
others, and has decided about it since. It is removed before the attempt begins, so that none begins twice.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from workbench.learner.host.learners import read_object
from workbench.learner.journal import state
from workbench.learner.platform import system
from workbench.learner.platform.files import write_files
from workbench.learner.queue.home_waiter import (
    LAPTOP,
    RESUME_SCRIPT,
    SECRETS_AT_HOST,
    WAITING_FOLDER,
    kept_file,
)

_FORMAT = 1


class KeptTicket(NamedTuple):
    """An attempt as it was handed over, from its file."""

    number: int
    """Its place among those of the waiter that kept it."""
    ticket: Dict[str, Any]
    secrets: Dict[str, str]
    needs_secrets: bool
    """Whether it has secrets whose values were not kept."""


class KeptTickets:
    """The kept tickets of a home at this host.

    Args:
        folder: the home's folder here.
        argv: the command that is its waiter.
    """

    def __init__(self, folder: str, argv: Sequence[str]) -> None:
        self._home_folder = folder
        self._folder = os.path.join(folder, WAITING_FOLDER)
        self._script = os.path.join(folder, RESUME_SCRIPT)
        self._argv = argv
        self._is_named = False

    @property
    def are_wanted(self) -> bool:
        """Whether tickets are kept here."""
        return os.path.exists(self._script)

    def name_waiter(self) -> None:
        """Have this waiter be the one that is started with the machine; the newest agent is the last one to say so.

        Raises:
            Failure: the disk is full, or cannot be written.
            OSError: the same.
        """
        words = [f"{name}={value}" for name, value in sorted(os.environ.items())]
        text = (
            "#!/bin/sh\n"
            "# Starts the jobs that wait here, when this machine has started. Remove it, and none is kept any more.\n"
            f"exec env -i {' '.join(map(shlex.quote, [*words, *self._argv]))}\n"
        )
        if not self.are_wanted:
            return
        if system.read_text(self._script) != text:
            write_files({self._script: text}, durable=True)
        self._is_named = True

    def keep(self, ticket: Mapping[str, Any], secrets: Mapping[str, str], number: int) -> None:
        """Keep an attempt that was handed over, or has other facts now; ``number`` orders those that are kept.

        Raises:
            Failure: the disk is full, or cannot be written.
            OSError: the same.
        """
        if not self._is_named:
            self.name_waiter()
        keeps_secrets = bool(ticket.get(SECRETS_AT_HOST))
        document = {
            "format": _FORMAT,
            "number": number,
            "ticket": dict(ticket),
            "launches": _launches(ticket),
            "secrets": dict(secrets) if keeps_secrets else {},
            "needs_secrets": bool(secrets) and not keeps_secrets,
        }
        path = kept_file(self._home_folder, str(ticket["job"]), int(ticket["attempt"]))
        write_files({path: json.dumps(document) + "\n"}, durable=True)

    def forget(self, job: str, attempt: int) -> None:
        """Keep an attempt no more: it begins now, or has ended."""
        with contextlib.suppress(OSError):
            os.unlink(kept_file(self._home_folder, job, attempt))
            _synchronise(self._folder)

    def read(self) -> List[KeptTicket]:
        """Return what was kept and is still to begin, in its order; files of others are removed.

        Those of a newer fabric are left to its waiter.
        """
        found: List[KeptTicket] = []
        for name in _names(self._folder):
            path = os.path.join(self._folder, name)
            document = read_object(path) or {}
            kept = _kept(document)
            if kept is not None:
                found.append(kept)
            elif not _is_newer(document):
                with contextlib.suppress(OSError):
                    os.unlink(path)
        return sorted(found, key=lambda kept: kept.number)


def show_missing_secrets(ticket: Mapping[str, Any]) -> None:
    """Write into the states of an attempt's learners that it waits for the machine which has its secrets.

    Raises:
        OSError: a folder takes nothing.
    """
    laptop = str(ticket.get(LAPTOP) or "the machine that it was submitted from")
    for one in ticket["learners"]:
        folder = str(one["folder"])
        lock = state.take_lock(folder)
        if lock is None:
            continue
        try:
            found = state.read(folder)
            if found.get("waiting") and not state.is_kept(found):
                state.StateFile(folder, found).update(
                    stall=f"needs its secrets again: run fabric on {laptop}"
                )
        finally:
            os.close(lock)


def _kept(document: Mapping[str, Any]) -> Optional[KeptTicket]:
    """Return what a document keeps; None where that is nothing to go by any more."""
    if document.get("format") != _FORMAT:
        return None
    try:
        ticket, secrets = dict(document["ticket"]), dict(document["secrets"])
        if _launches(ticket) != document["launches"]:
            return None
        return KeptTicket(int(document["number"]), ticket, secrets, bool(document["needs_secrets"]))
    except (OSError, KeyError, TypeError, ValueError):
        return None


def _is_newer(document: Mapping[str, Any]) -> bool:
    found = document.get("format")
    return isinstance(found, int) and found > _FORMAT


def _launches(ticket: Mapping[str, Any]) -> List[List[int]]:
    """Return the inode, time in nanoseconds and size in bytes of each learner's launch document."""
    paths = [os.path.join(str(one["folder"]), "launch.json") for one in ticket["learners"]]
    return [[found.st_ino, found.st_mtime_ns, found.st_size] for found in map(os.stat, paths)]


def _synchronise(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _names(folder: str) -> List[str]:
    try:
        return [name for name in os.listdir(folder) if name.endswith(".json")]
    except OSError:
        return []
