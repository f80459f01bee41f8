"""The store that ``fabric store serve`` serves on this machine; its server holds a lock on the file about it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from workbench.errors import CannotWrite, TryAgain
from workbench.paths import Home
from workbench.values import dataclass

ALIAS: Final = "http://s3.default.svc.cluster.local"
"""The address of FfDL's built-in store, as FfDL's examples write it."""

NAME: Final = "served"
"""The name of the served store on the command line, as in ``served:mnist``."""


@dataclass(frozen=True, slots=True)
class LocalStore:
    """A store that is served."""

    address: str
    """``http://127.0.0.1:9023``."""
    folder: str
    """Each folder in it is a container."""
    server: int = 0
    """The process that serves it."""
    pid: int = 0

    @property
    def connection(self) -> dict[str, str]:
        """The store's ``connection``, as a manifest has it."""
        return {
            "type": "s3_datastore",
            "auth_url": self.address,
            "user_name": TRIAL_KEY,
            "password": TRIAL_KEY,
        }


TRIAL_KEY: Final = "test"
"""User and password of FfDL's examples: no secret, and good for a store on loopback only."""


def served_store(home: Home) -> LocalStore | None:
    """Return the store that is served right now, None when nobody serves one."""
    try:
        descriptor = os.open(home.served_store, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if _lock(descriptor):
            return None  # nobody holds the lock: the file describes a server that has ended
        return _read(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def serving(home: Home) -> Iterator[Registration]:
    """Register as the server of the home's store, by holding the lock.

    Raises:
        TryAgain: another one does already.
        CannotWrite: the home takes no more.
    """
    file = home.served_store
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CannotWrite(f"cannot write {file}: {error.strerror}") from error
    try:
        if not _lock(descriptor):
            other = _read(descriptor)
            where = f" at {other.address}, with the folder {other.folder}" if other else ""
            raise TryAgain(
                f"a store is served already{where}", hint="one at a time; end that one with ctrl-c"
            )
        os.ftruncate(descriptor, 0)
        yield Registration(descriptor)
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


class Registration:
    """The file that describes the served store. Only the holder of its lock writes it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def write(self, served: LocalStore) -> None:
        """Describe the served store in the file."""
        text = json.dumps({**asdict(served), "pid": os.getpid()})
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, text.encode(), 0)


def make_served_containers(served: LocalStore, names: Sequence[str]) -> list[str]:
    """Make containers in the store that is served, and have its server look at its folder again.

    Raises:
        CannotWrite: one cannot be made.
    """
    made = make_containers(Path(served.folder), names)
    if made and served.server:
        with contextlib.suppress(ProcessLookupError):
            os.kill(served.server, signal.SIGHUP)
    return made


def make_containers(folder: Path, names: Sequence[str]) -> list[str]:
    """Make the folders of containers that are not there yet; return their names.

    Raises:
        CannotWrite: one cannot be made.
    """
    made = []
    for name in names:
        path = folder / name
        if path.is_dir():
            continue
        try:
            path.mkdir(parents=True)
        except OSError as error:
            raise CannotWrite(f"cannot make the container {path}: {error.strerror}") from error
        made.append(name)
    return made


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(descriptor: int) -> LocalStore | None:
    try:
        document = json.loads(os.pread(descriptor, 1 << 16, 0))
        return LocalStore(**document)
    except (OSError, ValueError, TypeError):
        return None
