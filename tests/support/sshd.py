"""A real sshd on a loopback address with users of its own: started by the tests, and gone after them."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.support.ports import free_port
from tests.support.waiting import until

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


def why_not() -> str:
    """Say why no sshd can be started here; empty where one can."""
    if os.geteuid() != 0:
        return "needs root: users are made for the tests"
    for program in (SSHD, "ssh", "useradd", "userdel", "ssh-keygen"):
        if shutil.which(program) is None:
            return f"needs {Path(program).name} (Debian's openssh-server)"
    if not any(Path(path).exists() for path in ("/usr/bin/python3", "/usr/local/bin/python3")):
        return "needs a Python that every user may run"
    return ""


@dataclass(frozen=True, slots=True)
class User:
    """A user of this machine who exists for one test."""

    name: str
    home: Path
    shell: str

    @property
    def uid(self) -> int:
        """Its number."""
        return pwd.getpwnam(self.name).pw_uid

    def owns(self, path: Path) -> None:
        """Give a file or folder to the user."""
        entry = pwd.getpwnam(self.name)
        os.chown(path, entry.pw_uid, entry.pw_gid)


def make_user(shell: str = "/bin/bash", *, within: Path | None = None) -> User:
    """Make a user who can log in by key; the home folder is made in the temporary one unless another is named."""
    name = f"fab{secrets.token_hex(4)}"
    home = Path(tempfile.mkdtemp(prefix="fabuser-", dir=within))
    home.rmdir()
    _run("useradd", "--no-log-init", "-m", "-d", str(home), "-s", shell, "-p", "*", name)
    home.chmod(0o755)
    return User(name, home, shell)


@contextmanager
def a_user(shell: str = "/bin/bash", *, within: Path | None = None) -> Iterator[User]:
    """Make a user, and remove it."""
    user = make_user(shell, within=within)
    try:
        yield user
    finally:
        remove_user(user)


def let_use_docker(user: User) -> None:
    """Let a user who is not logged in yet use the Docker engine."""
    _run("usermod", "-aG", grp.getgrgid(Path("/var/run/docker.sock").stat().st_gid).gr_name, user.name)


def set_password(user: User, password: str) -> None:
    """Let a user log in with a password, where sshd lets anybody."""
    subprocess.run(
        ["chpasswd"], input=f"{user.name}:{password}\n", text=True, check=True, capture_output=True
    )


def remove_user(user: User) -> None:
    """Kill what the user still runs, and remove the user with the home folder."""
    uid = user.uid
    until(lambda: not kill_all(user), f"the processes of {user.name} to end")
    _run("userdel", "-f", user.name)
    shutil.rmtree(user.home, ignore_errors=True)
    # The next user of the tests may get the same number. Who is killed leaves the clock that libfaketime shares, too.
    for path in Path("/dev/shm").iterdir():
        with suppress(FileNotFoundError):
            if path.lstat().st_uid != uid:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def processes_of(user: User) -> list[int]:
    """List what a user runs, zombies left out."""
    uid = user.uid
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if entry.stat().st_uid == uid and _state(int(entry.name)) not in ("Z", ""):
                    found.append(int(entry.name))
    return found


def runs(user: User, word: bytes) -> bool:
    """Say whether a user runs a command with this word in it."""
    for pid in processes_of(user):
        with contextlib.suppress(OSError):  # it has just ended
            if word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return True
    return False


def kill_all(user: User) -> list[int]:
    """Kill what runs as a user at this moment; return what there was.

    All of it is stopped before: an agent that saw the end of its command, which may have a smaller number, would say
    that the command was killed.
    """
    found = processes_of(user)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
    return found


def cut_power(user: User) -> None:
    """End what runs as a user as a machine does that loses its power: none of them sees another one end."""
    until(lambda: not _stop_all(user), f"the processes of {user.name} to stop")
    until(lambda: not kill_all(user), f"the processes of {user.name} to end")


def _stop_all(user: User) -> list[int]:
    """Stop what runs as a user; return what had not stopped yet."""
    found = [pid for pid in processes_of(user) if _state(pid) not in ("T", "")]
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    return found


def _state(pid: int) -> str:
    """Return the letter of a process's state; empty for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


class Daemon:
    """An sshd of the tests' own."""

    def __init__(
        self,
        folder: Path,
        address: str = "127.0.0.1",
        *,
        settings: Sequence[str] = (),
        within: Sequence[str] = (),
        program: str = SSHD,
    ) -> None:
        self._within = within
        self._program = program
        self.folder = folder
        self.address = address
        self.port = 22 if within[:1] == ["ip"] else free_port(address)
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "sshd.log"
        folder.mkdir(parents=True, exist_ok=True)
        self.new_host_key()
        self._config = folder / "sshd_config"
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        defaults = [
            f"ListenAddress {address}:{self.port}",
            f"HostKey {folder}/host_key",
            f"PidFile {folder}/sshd.pid",
            f"AuthorizedKeysFile {folder}/keys/%u",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PrintMotd no",
            "LogLevel VERBOSE",
        ]
        # The first value counts.
        self._config.write_text("\n".join([*settings, *defaults]) + "\n")
        (folder / "keys").mkdir(exist_ok=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *about: object) -> None:
        self.stop()

    def new_host_key(self) -> None:
        """Make another host key, as a machine that was set up again has."""
        for name in ("host_key", "host_key.pub"):
            (self.folder / name).unlink(missing_ok=True)
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / "host_key"))

    def authorize(self, user: User, public_key: Path) -> None:
        """Let a key in as a user."""
        file = self.folder / "keys" / user.name
        file.write_text(public_key.read_text())
        file.chmod(0o644)
        for path in (file, *file.parents):
            if path.is_relative_to(self.folder.parent):
                path.chmod(path.stat().st_mode | 0o055)

    def start(self) -> None:
        """Start, and wait until it listens.

        It says so itself. One that takes a single connection at a time would refuse who comes right after a look.
        """
        with self._log.open("ab") as log:
            begin = log.tell()
            self._process = subprocess.Popen(
                [*self._within, self._program, "-D", "-e", "-f", str(self._config)],
                stdin=subprocess.DEVNULL,
                stderr=log,
                stdout=log,
            )
        try:
            until(
                lambda: b"Server listening" in self._log.read_bytes()[begin:],
                lambda: f"sshd to listen; {self.log()}",
            )
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill it and all its sessions at once."""
        if self._process is not None:
            # Stopped first: a connection that comes in once sessions were listed would outlive it.
            stopped = {self._process.pid}
            self._process.send_signal(signal.SIGSTOP)
            while new := set(self.sessions()) - stopped:
                _send(signal.SIGSTOP, new)
                stopped |= new
            _send(signal.SIGKILL, stopped)
            self._process.wait()
            self._process = None

    def sessions(self) -> list[int]:
        """List its processes that serve connections."""
        if self._process is None:
            return []
        return _descendants_named(self._process.pid, Path(self._program).name[:15])

    def kill_sessions(self) -> int:
        """Kill what serves its connections, as a crash would; return how many there were."""
        found = self.sessions()
        _send(signal.SIGKILL, found)
        return len(found)

    def known_line(self, name: str = "") -> str:
        """Return the line that known_hosts has of it."""
        kind, key, *_ = (self.folder / "host_key.pub").read_text().split()
        return f"{name or f'[{self.address}]:{self.port}'} {kind} {key}\n"

    def log(self) -> str:
        """Read what it had to say."""
        return self._log.read_text(errors="replace")

    def connections(self) -> int:
        """Return how many connections it was ever asked for."""
        return self.log().count("Connection from")

    def listens(self) -> bool:
        """Say whether it takes connections."""
        with contextlib.suppress(OSError), socket.create_connection((self.address, self.port), 1):
            return True
        return False


def _send(number: signal.Signals, pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _descendants_named(root: int, name: str) -> list[int]:
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                text = (entry / "stat").read_text()
                names[int(entry.name)] = text.partition("(")[2].rpartition(")")[0]
                fields = text.rpartition(")")[2].split()
                if fields[0] != "Z":
                    parents[int(entry.name)] = int(fields[1])
    found, edge = [], [root]
    while edge:
        edge = [pid for pid, parent in parents.items() if parent in edge]
        found += [pid for pid in edge if names[pid].startswith(name)]
    return found


def _run(*argv: str) -> None:
    ran = subprocess.run(argv, capture_output=True, text=True)
    assert ran.returncode == 0, f"{argv} ended with {ran.returncode}: {ran.stdout}{ran.stderr}"
