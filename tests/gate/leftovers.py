"""What a run of tests that was killed has left on this machine, and its removal before the next run.

Everything that tests make carries a mark in its name: ``fab-...`` in a temporary folder, users ``fab`` with eight
digits, namespaces of the network ``f...jump``. Nobody owns what carries one while no session of tests runs on the
machine. So a session holds a lock, shared with others; one that is alone removes all that is marked, and says what it
was. A session that a test starts has neither lock nor right to remove.

``python -m tests.gate.leftovers`` does the same by hand.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pytest

SESSION: Final = "FABRIC_TEST_SESSION"
"""Set in the environment of all that a session starts."""
LOCK: Final = Path("/tmp/fabric-tests.lock")
TEMPORARY: Final = re.compile(r"(fab|fabuser|fab-(agents|stub|engine|podman|browser))-[a-z0-9_]{6,8}")
FOLDERS: Final = {
    "/tmp": TEMPORARY,
    "/tmp/f": TEMPORARY,  # where .ci/run has the files of tests in memory
    "/srv": re.compile(r"fabbare-[a-z0-9_]{8}"),
    "/var/tmp": re.compile(r"(fab-engine-|fab-d|fabric-claim-|fabric-node-)[a-z0-9_]{8}"),
}
USER: Final = re.compile(r"fab[0-9a-f]{8}")
SHARED_MEMORY: Final = re.compile(r"fabric-(\d+|fab[0-9a-f]{8})")
HISTORIES: Final = re.compile(r"fabric-(?:lives|queues)-(\d+)-[a-z0-9_]{8}")
"""Where a process lives simulated histories, by its number."""
NETWORK: Final = re.compile(r"f[0-9a-f]{6}(jump|target)")
LINK: Final = re.compile(r"f[0-9a-f]{6}a|fab[0-9a-f]{8}")


class Session:
    """Holds the lock of a session, and says what was removed at its start."""

    def __init__(self) -> None:
        self._held = _open_lock()
        self._removed: list[str] = []
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._removed = remove_marked()
        fcntl.flock(self._held, fcntl.LOCK_SH)

    def pytest_report_header(self) -> list[str]:
        """Say what was removed."""
        return [f"removed what another run had left: {', '.join(self._removed)}"] if self._removed else []

    def pytest_unconfigure(self) -> None:
        """Let the lock go."""
        self._held.close()


def pytest_configure(config: pytest.Config) -> None:
    """Remove what is left when no other session runs here, and keep others from removing what this one makes."""
    if hasattr(config, "workerinput") or config.option.collectonly or SESSION in os.environ:
        return
    os.environ[SESSION] = str(os.getpid())
    with contextlib.suppress(OSError):
        config.pluginmanager.register(Session(), "fabric-session")


def remove_when_alone() -> list[str]:
    """Remove what is left, unless a session runs; return what it was."""
    with _open_lock() as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return []
        return remove_marked()


def remove_marked() -> list[str]:
    """Remove all that carries a mark and that this user may remove; return a line for each kind of it."""
    folders = marked_folders()
    users = [entry.pw_name for entry in pwd.getpwall() if USER.fullmatch(entry.pw_name)]
    counts = {
        "processes": _kill(marked_processes(folders, users)),
        "containers": _remove_containers(),
        "mounts": _unmount(folders),
        "networks": _remove_networks(),
        "users": _remove_users(users),
        "folders": sum(remove_folder(folder) for folder in [*folders, *_shared_memory()]),
    }
    return [f"{count} {kind}" for kind, count in counts.items() if count]


def marked_folders() -> list[Path]:
    """Return the temporary folders of tests, those that pytest keeps left out."""
    return [
        entry
        for folder, mark in FOLDERS.items()
        if Path(folder).is_dir()
        for entry in sorted(Path(folder).iterdir())
        if mark.fullmatch(entry.name) and not entry.is_symlink()
    ]


def marked_processes(folders: Iterable[Path], users: Iterable[str]) -> list[int]:
    """Return the processes that a session has started, that name such a folder, or that such a user runs."""
    uids = {pwd.getpwnam(user).pw_uid for user in users}
    words = [SESSION.encode() + b"=", *(os.fsencode(folder) for folder in folders)]
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in _own_line():
            with contextlib.suppress(OSError):
                text = (entry / "cmdline").read_bytes() + b"\0" + (entry / "environ").read_bytes()
                if entry.stat().st_uid in uids or any(word in text for word in words):
                    found.append(int(entry.name))
    return found


def remove_folder(folder: Path) -> bool:
    """Remove a folder, unless something is mounted in it: what is mounted there is not a test's."""
    if any(_mounts_within(folder)):
        return False
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def _open_lock() -> IO[str]:
    """Open the lock of all users of this machine: what one of them tests may be started by another's tests."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(LOCK, os.O_CREAT | os.O_EXCL, 0o644))
    return LOCK.open()  # a file of another user in /tmp may not be opened to be created


def _own_line() -> set[int]:
    """Return this process and those that it descends from."""
    line, pid = set(), os.getpid()
    while pid > 1:
        line.add(pid)
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            continue
        break
    return line


def _kill(pids: Iterable[int]) -> int:
    count = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            count += 1
    return count


def _mounts_within(folder: Path) -> Iterator[str]:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        place = line.split()[1]
        if place == str(folder) or place.startswith(f"{folder}/"):
            yield place


def _unmount(folders: Iterable[Path]) -> int:
    places = [place for folder in folders for place in _mounts_within(folder)]
    return sum(_did("umount", "-l", place) for place in sorted(places, reverse=True))


def _remove_networks() -> int:
    names = [path.name for path in _entries("/run/netns") if NETWORK.fullmatch(path.name)]
    links = [path.name for path in _entries("/sys/class/net") if LINK.fullmatch(path.name)]
    return sum(_did("ip", "link", "del", name) for name in links) + sum(
        _did("ip", "netns", "del", name) for name in names
    )


def _remove_users(users: Iterable[str]) -> int:
    return sum(_did("userdel", "-f", user) for user in users)


def _remove_containers() -> int:
    """Remove the containers of the machine's engine that have a test's folder mounted."""
    try:
        asked = ["docker", "ps", "-aq", "--filter", "label=fabric.home"]
        names = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True).stdout.split()
        if not names:
            return 0
        argv = ["docker", "inspect", *names]
        documents = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    ours = [
        document["Id"]
        for document in json.loads(documents or "[]")
        if any(_is_in_marked(mount.get("Source", "")) for mount in document["Mounts"])
    ]
    return sum(_did("docker", "rm", "-f", name) for name in ours)


def _is_in_marked(path: str) -> bool:
    return any(
        path.startswith(f"{folder}/") and mark.fullmatch(path.removeprefix(f"{folder}/").partition("/")[0])
        for folder, mark in FOLDERS.items()
    )


def _shared_memory() -> list[Path]:
    """Return the folders of users and processes that are gone; that of a user of this machine is in use."""
    there = {str(entry.pw_uid) for entry in pwd.getpwall()} | {entry.pw_name for entry in pwd.getpwall()}
    return [
        path
        for path in _entries("/dev/shm")
        if ((mark := SHARED_MEMORY.fullmatch(path.name)) and mark[1] not in there)
        or ((mark := HISTORIES.fullmatch(path.name)) and not Path("/proc", mark[1]).exists())
    ]


def _entries(folder: str) -> list[Path]:
    return sorted(Path(folder).iterdir()) if Path(folder).is_dir() else []


def _did(*argv: str) -> bool:
    try:
        return subprocess.run(argv, capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


if __name__ == "__main__":
    print(", ".join(remove_when_alone()) or "nothing was left")
    sys.exit(0)
