"""Where a home lies, so that a copy of it is known for one: a copy only reads, and steers no learner.

``binding.json`` names the folder that the home is: its path, its file system's device and inodes, the machine and
its boot. No fact alone is enough: a device has another number after a boot, a path is the same on two machines, a
container has no machine id, and a network file system is seen by several machines. :func:`judge` weighs them.

Imports next to nothing: every command that asks the controller for something looks here first.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from dataclasses import asdict, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from workbench.errors import HomeNotBound
from workbench.paths import Home, create_private
from workbench.store.db.filesystem import filesystem_type, is_network, lasting_machine_id
from workbench.values import dataclass

FORMAT: Final = 1

BIND: Final = "fabric doctor --bind-home"

_LAUNCHES: Final = 20
"""So many of the newest jobs are asked where they were launched, of a home that no version bound before."""

_NUMBERED_ANEW: Final = ("fuse", "vfat", "msdos", "exfat")
"""File systems whose inodes have other numbers each time that they are mounted."""


class Standing(StrEnum):
    """What a folder with a ``home.json`` is."""

    HOME = "home"
    """The folder that is bound."""
    MOVED = "moved"
    """The folder that is bound, under another path: its learners look for their files under the old one."""
    COPY = "copy"
    """Another folder: a copy, or what was restored from a backup."""


@dataclass(frozen=True, slots=True)
class Binding:
    """One folder, as exactly as it can be named."""

    path: str
    """With all links resolved."""
    machine: str
    """Empty where a machine has no lasting id, as most containers."""
    boot: str
    """Empty where the system has none that is cheap to read."""
    device: int
    inode: int
    mark: int
    """The inode of ``binding.json`` itself: a folder that is a whole file system has the same inode as all such."""
    filesystem: str


def standing(home: Home) -> Standing:
    """Say what a home's folder is; one that no version has bound yet is bound."""
    bound = ensure_bound(home)
    return Standing.HOME if bound is None else _standing(home, bound)


def is_home(home: Home) -> bool:
    """Say whether this folder may steer the home's learners."""
    return standing(home) is Standing.HOME


def require_home(home: Home) -> None:
    """Refuse in a folder that only reads.

    Raises:
        HomeNotBound: it is a copy, or was moved.
    """
    if (text := why_not(home)) is not None:
        raise HomeNotBound(text, hint=_hint(home))


def refuse_linked_copy(home: Home) -> None:
    """Refuse a copy whose database is a hard link to the original's: even who reads opens, and may change, both.

    The original has as many links, and is served as ever.

    Raises:
        HomeNotBound: it is such a copy.
    """
    try:
        is_linked = home.database.stat().st_nlink > 1
    except OSError:
        return
    if is_linked and standing(home) is Standing.COPY:
        raise HomeNotBound(
            f"{home.path} is a copy by hard links: its database is the original's, which reading it would change",
            hint=f"`cp -a {home.path} FOLDER` makes a copy that can be read, with FABRIC_HOME=FOLDER",
        )


def why_not(home: Home) -> str | None:
    """Say in a sentence why a folder steers no learners; None where it does."""
    bound = ensure_bound(home)
    found = Standing.HOME if bound is None else _standing(home, bound)
    if bound is None or found is Standing.HOME:
        return None
    if found is Standing.MOVED:
        return f"{home.path} was moved: it is bound to {bound.path}"
    if not bound.path:
        return f"{home.path} is a copy of another home, or its binding is damaged, so it only reads"
    if os.path.realpath(home.path) == bound.path:
        return f"{home.path} is not the folder that was bound: it was restored or copied, so it only reads"
    elsewhere = " of another machine" if _is_elsewhere(bound) else ""
    return f"{home.path} is a copy of the home {bound.path}{elsewhere}, so it only reads"


def original(home: Home, uuid: str) -> str:
    """Return the path of the home that this one is a copy of, if it can be seen; else empty."""
    bound = read_binding(home)
    if bound is None or not bound.path or _is_elsewhere(bound):
        return ""
    return bound.path if is_twin(home, uuid, Path(bound.path)) else ""


def is_twin(home: Home, uuid: str, folder: Path) -> bool:
    """Say whether another folder is a home of the same uuid."""
    return _uuid_of(folder) == uuid and not is_same_folder(folder, home.path)


def is_of_another_machine(home: Home) -> bool:
    """Say whether a home is bound to a folder of another machine, which cannot be looked at from here."""
    bound = read_binding(home)
    return bound is not None and _is_elsewhere(bound)


def read_binding(home: Home) -> Binding | None:
    """Return the folder that a home is bound to; None where none is named.

    A file that cannot be read names no folder of this world.
    """
    try:
        document = json.loads(home.binding.read_bytes())
        return Binding(**{field.name: type_of(document[field.name]) for field, type_of in _FIELDS})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return _NOWHERE


def ensure_bound(home: Home) -> Binding | None:
    """Bind a home that no version has bound yet, and return its binding.

    None where there is no home, or it cannot be written.
    """
    if (found := read_binding(home)) is not None or not home.identity.is_file():
        return found
    with contextlib.suppress(OSError):
        _write(home, _origin(home), replaces=False)
    return read_binding(home)


def refresh(home: Home) -> None:
    """Note what has another number since a boot. Only for the holder of the controller lock."""
    with contextlib.suppress(OSError):
        if read_binding(home) != binding_of(home):
            bind(home)


def bind(home: Home) -> None:
    """Bind a home to the folder that it lies in now.

    Raises:
        OSError: it cannot be written.
    """
    _write(home, None, replaces=True)


def judge(bound: Binding, here: Binding) -> Standing:
    """Say what a folder is to the one that is bound. Pure but for one question: does the old path lead here, too?"""
    if not _names_same(bound, here):
        return Standing.COPY
    if bound.path == here.path or not bound.machine or bound.machine != here.machine:
        # Elsewhere, as in a container, the path says nothing: the folder is mounted there.
        return Standing.HOME
    return Standing.HOME if is_same_folder(Path(bound.path), Path(here.path)) else Standing.MOVED


def _names_same(bound: Binding, here: Binding) -> bool:
    if bound.boot and (bound.boot, bound.device, bound.inode) == (here.boot, here.device, here.inode):
        return True
    is_shared = is_network(bound.filesystem) and is_network(here.filesystem)
    is_elsewhere = bool(bound.machine and here.machine and bound.machine != here.machine)
    if here.filesystem.startswith(_NUMBERED_ANEW):
        return bound.path == here.path and (is_shared or not is_elsewhere)
    if (bound.inode, bound.mark) != (here.inode, here.mark):
        return False
    if is_shared:
        return True
    return not is_elsewhere and (bound.path == here.path or bound.device == here.device)


def _standing(home: Home, bound: Binding) -> Standing:
    try:
        found = home.path.stat()
    except OSError:
        return Standing.HOME  # whoever needs the folder says what is wrong with it
    is_known = bound.boot and (found.st_dev, found.st_ino) == (bound.device, bound.inode)
    if is_known and bound.boot == _boot() and os.path.realpath(home.path) == bound.path:
        return Standing.HOME
    return judge(bound, binding_of(home))


def binding_of(home: Home) -> Binding:
    """Name the folder that a home lies in.

    Raises:
        OSError: it is not there.
    """
    found, mark = home.path.stat(), 0
    with contextlib.suppress(OSError):
        mark = home.binding.stat().st_ino
    return Binding(
        path=os.path.realpath(home.path),
        machine=lasting_machine_id(),
        boot=_boot(),
        device=found.st_dev,
        inode=found.st_ino,
        mark=mark,
        filesystem=filesystem_type(home.path),
    )


def _write(home: Home, origin: Binding | None, *, replaces: bool) -> None:
    """Write where a home lies, or which folder it is a copy of, whole or not at all."""
    temporary = home.path / f".binding.json.{os.getpid()}.{threading.get_ident()}"
    try:
        with create_private(temporary) as stream:
            mark = os.fstat(stream.fileno()).st_ino
            binding = origin or replace(binding_of(home), mark=mark)
            json.dump({"format": FORMAT, **asdict(binding)}, stream)
            stream.flush()
            os.fsync(stream.fileno())
        if replaces:
            temporary.rename(home.binding)
        else:
            from workbench.learner.platform.system import name_once  # only a new home needs it

            name_once(str(temporary), str(home.binding))
    finally:
        temporary.unlink(missing_ok=True)


def _origin(home: Home) -> Binding | None:
    """Return the folder that a home was copied from before any version bound homes; None where it is not a copy."""
    uuid = _uuid_of(home.path)
    for path in _launched_from(home):
        if is_twin(home, uuid, path):
            return binding_of(Home(path))
    return _NOWHERE if _is_steered_elsewhere(home) else None


def _launched_from(home: Home) -> list[Path]:
    """Return the homes that the newest learners here were launched from, by what their launch documents say."""
    found: dict[Path, None] = {}
    try:
        jobs = sorted(os.scandir(home.jobs), key=lambda entry: entry.stat().st_mtime, reverse=True)
    except OSError:
        return []
    for job in jobs[:_LAUNCHES]:
        for launch in Path(job.path).glob("attempt-*/learner-*/launch.json"):
            with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
                for argument in json.loads(launch.read_bytes()).get("guard") or ():
                    before, inside, _ = str(argument).partition(f"/{home.jobs.name}/{job.name}/")
                    if inside:
                        found[Path(before)] = None
    return list(found)


def _is_steered_elsewhere(home: Home) -> bool:
    """Say whether a controller answers where the lock file says, though nobody holds this lock file."""
    import fcntl
    import socket

    try:
        address = str(json.loads(home.controller_lock.read_bytes())["socket"])
        with socket.socket(socket.AF_UNIX) as connection, home.controller_lock.open("rb") as lock:
            connection.settimeout(2.0)
            connection.connect(address)
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (OSError, ValueError, KeyError, TypeError):
        return False  # nobody answers, or it is held: that controller is this home's own
    return True


def _hint(home: Home) -> str:
    bound = read_binding(home)
    if bound is not None and original(home, _uuid_of(home.path)):
        return f"FABRIC_HOME={bound.path} steers its jobs; for others FABRIC_HOME names a new folder"
    return f"`{BIND}` makes this folder the home, and takes its jobs over"


def _is_elsewhere(bound: Binding) -> bool:
    here = lasting_machine_id()
    return bool(bound.machine and here and bound.machine != here)


def is_same_folder(one: Path, other: Path) -> bool:
    """Say whether two paths lead to one folder."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def _uuid_of(folder: Path) -> str:
    try:
        return str(json.loads(Home(folder).identity.read_bytes())["uuid"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _boot() -> str:
    if sys.platform != "linux":
        return ""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


_NOWHERE: Final = Binding("", "", "", -1, -1, -1, "")
_FIELDS: Final[tuple[tuple[Any, Any], ...]] = tuple(
    (field, int if field.name in ("device", "inode", "mark") else str) for field in fields(Binding)
)
