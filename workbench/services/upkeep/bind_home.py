"""Makes the folder that a home was moved to the home, and has its jobs taken over."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from workbench.errors import HomeNotBound, InputMissing
from workbench.paths import Home
from workbench.store.db.home_folder import (
    Standing,
    bind,
    is_of_another_machine,
    is_same_folder,
    is_twin,
    original,
    read_binding,
    standing,
)
from workbench.values import dataclass


@dataclass(frozen=True, slots=True)
class Found:
    """What a folder is before it is bound."""

    home: Home
    uuid: str
    was: Standing
    before: str
    """The path that the home was bound to; empty where none is known."""
    is_elsewhere: bool
    """Whether that is a folder of another machine, so that nobody here can tell whether it is still used."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What was done."""

    home: str
    uuid: str
    was: str
    """What the folder was until now: ``home``, ``moved``, ``copy``."""
    before: str | None
    """The path that the home was bound to, where it is another."""
    open_jobs: int
    link: str | None = None
    """The old path, where a link was put that leads to the new one."""
    trouble: str = ""
    """Why none could be put there, where jobs need one."""


def look_at_home(home: Home) -> Found:
    """Say what a folder is that is to be bound.

    Raises:
        HomeNotBound: the home that it is a copy of is still there.
        InputMissing: there is no home.
    """
    from workbench.store.db.identity import home_uuid

    if not home.identity.is_file():
        raise InputMissing(f"{home.path} is not a home yet", hint="the first job makes it, and binds it")
    uuid, was, before = home_uuid(home), standing(home), read_binding(home)
    if was is Standing.COPY:
        _refuse_twin(home, uuid)
    is_elsewhere = was is Standing.COPY and is_of_another_machine(home)
    return Found(home, uuid, was, before.path if before else "", is_elsewhere)


def bind_home(found: Found) -> Bound:
    """Bind a home to its folder, and have the controller take its jobs over.

    Raises:
        CannotWrite: the home takes no more.
        TryAgain: the controller of its old path does not end.
    """
    from workbench.controller.client.connect import ensure_controller
    from workbench.store.db.database import Store
    from workbench.store.queries.jobs import open_jobs

    home, is_new = found.home, found.was is not Standing.HOME
    _bind(home, is_new=is_new)
    with Store.open(home, migrate=True) as store:
        store.bind_controller(force=is_new)
        waiting = open_jobs(store)
    old_path = found.before if found.before != os.path.realpath(home.path) else ""
    link, trouble = None, ""
    if old_path and any(row.target.type == "local" for row in waiting):
        link, trouble = _link(old_path, home)
    if waiting:
        ensure_controller(home)
    return Bound(str(home.path), found.uuid, str(found.was), old_path or None, len(waiting), link, trouble)


def _refuse_twin(home: Home, uuid: str) -> None:
    if other := original(home, uuid) or _steered_from(home, uuid):
        raise HomeNotBound(
            f"{home.path} is a copy of {other}, which is still there: both would steer the same learners",
            hint=f"it can be read as it is. FABRIC_HOME={other} steers its jobs, a new folder serves new ones; "
            f"once {other} is removed this one can be bound",
        )


def _steered_from(home: Home, uuid: str) -> str:
    """Return the folder whose controller runs under the same uuid; empty where there is none but this."""
    from workbench.controller.client.connect import pid_at
    from workbench.controller.runtime.server import socket_path

    pid = pid_at(str(socket_path(uuid)))
    arguments = [] if pid is None else _command_line(pid)
    folders = [Path(folder) for argument, folder in pairwise(arguments) if argument == "--home"]
    return next((str(folder) for folder in folders if is_twin(home, uuid, folder)), "")


def _command_line(pid: int) -> list[str]:
    """Return the command line of a process; empty where it has ended."""
    try:
        return [
            os.fsdecode(argument)
            for argument in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if argument
        ]
    except OSError:
        pass
    try:  # macOS has no /proc
        asked = subprocess.run(
            ["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return asked.stdout.split()


def _bind(home: Home, *, is_new: bool) -> None:
    """Bind the home; where it is new there, no lock file is left that names another controller's socket."""
    from workbench.controller.runtime.lock import ControllerLock
    from workbench.services.upkeep.rebuild import take_controller_lock
    from workbench.store.db.errors import write_failure

    # One that holds this very file looks after this folder, under its old path perhaps; a copied file nobody holds.
    lock = ControllerLock.take(home) if is_new else None
    try:
        bind(home)
    except OSError as error:
        raise write_failure(error, home.binding) from error
    finally:
        if lock is not None:
            lock.write_address("")
            lock.release()
    if is_new and lock is None:
        take_controller_lock(home).release()


def _link(old_path: str, home: Home) -> tuple[str | None, str]:
    """Lead the old path to the home, since what was started there looks for its files by it; or say why not."""
    with suppress(OSError):
        Path(old_path).rmdir()  # only if nothing is in it: a process of before made the folder again
    try:
        Path(old_path).symlink_to(home.path.resolve())
    except OSError as error:
        return None, "" if is_same_folder(Path(old_path), home.path) else str(error)
    return old_path, ""
