"""Two ways to keep one connection for all: paramiko in this process, and OpenSSH's ``ssh -M`` beside it.

Both serve the same agent's frames at the same sshd, on loopback and through a jump host, in turn.
"""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import Final

from backends.contract.host import BackendOptions, Host
from backends.contract.prompts import CREDENTIALS, LoginPrompt
from backends.ssh.backend import SshBackend
from backends.ssh.connection import Pipe
from backends.ssh.shared_sessions import SESSION_SHARING, SharesSessions
from tests.bench.harness import Row, in_turn
from tests.bench.ssh import Ground, ground
from tests.bench.ssh_links import as_user, behind
from tests.support.sshd import Daemon, set_password

LOG_BYTES: Final = 99_000_000
UPLOAD_BYTES: Final = 1 << 30
PIECE_BYTES: Final = 65_536
PASSWORD: Final = "pass-bench"
CLEARLY: Final = 1.5
"""OpenSSH would have to be so much faster to be worth a process of its own, and a second way to ask for a login."""

PEER: Final = "`ssh -M`"


def direct_rows() -> list[Row]:
    """A first reply, another session's, a million lines, and 1 GiB up."""
    with ground() as it, as_user(it):
        return _rows_of(it, "box", "SSH by paramiko")


def jump_rows() -> list[Row]:
    """The same through a jump host."""
    with ground() as it, behind(it):
        return _rows_of(it, "target", "SSH by paramiko through a jump host")


def typed_rows() -> list[Row]:
    """A login that somebody types."""
    with ground() as it, as_user(it):
        return [_typed_row(it)]


def _rows_of(it: Ground, name: str, where: str) -> list[Row]:
    journal = _journal(it)
    with _masters(it) as config, tempfile.TemporaryFile() as source:
        for _ in range(UPLOAD_BYTES >> 20):
            source.write(os.urandom(1 << 20))

        def end() -> None:
            for alias in (name, "jump"):
                subprocess.run(["ssh", "-F", config, "-O", "exit", alias], capture_output=True)

        def open_ours() -> float:
            return _seconds(lambda: _first_reply(_ours(name)))

        def open_theirs() -> float:
            end()
            return _seconds(lambda: _first_reply(_theirs(name, config)))

        made = [_row(f"{where}: connection and first reply", open_ours, open_theirs, 9)]
        with ExitStack() as opened:
            ours = opened.enter_context(closing(_ours(name).open()))
            end()
            theirs = opened.enter_context(closing(_theirs(name, config).open()))

            def session_of_ours() -> float:
                with _lent(ours):
                    return _seconds(lambda: _first_reply(_ours(name)))

            def session_of_theirs() -> float:
                return _seconds(lambda: _first_reply(_theirs(name, config)))

            made.append(_row(f"{where}: one more session", session_of_ours, session_of_theirs, 9))

            def lines(host: Host) -> Callable[[], float]:
                return lambda: _seconds(lambda: _read_all(host, journal))

            made.append(_row(f"{where}: 1,000,000 lines", lines(ours), lines(theirs), 7))

            def upload(host: Host) -> Callable[[], float]:
                def put() -> None:
                    source.seek(0)
                    host.put(source, f"{it.user.home}/uploaded")

                return lambda: _seconds(put)

            made.append(_row(f"{where}: upload of 1 GiB", upload(ours), upload(theirs), 3))
        end()
    return made


def _typed_row(it: Ground) -> Row:
    """From nothing to the first reply where the host asks a question; a program answers at once, as a person would."""
    root = Path(it.environment["HOME"])
    set_password(it.user, PASSWORD)
    settings = [
        "UsePAM yes",
        "KbdInteractiveAuthentication yes",
        "AuthenticationMethods keyboard-interactive",
    ]
    daemon = Daemon(root / "sshd-typed", settings=[*settings, f"SetEnv FABRIC_LEASES={root}/leases"])
    answer = root / "answer"
    answer.write_text(f"#!/bin/sh\necho {PASSWORD}\n")
    answer.chmod(0o700)
    daemon.start()
    try:
        with (root / ".ssh" / "config").open("a") as stream:
            stream.write(
                f"Host typed\n  HostName {daemon.address}\n  Port {daemon.port}\n  User {it.user.name}\n"
                f"  UserKnownHostsFile {root}/.ssh/known_hosts\n"  # ssh does not look below $HOME
            )
        with (root / ".ssh" / "known_hosts").open("a") as stream:
            stream.write(daemon.known_line())
        with _masters(it) as config:
            environment = {**os.environ, "SSH_ASKPASS": str(answer), "SSH_ASKPASS_REQUIRE": "force"}

            def ours() -> float:
                with CREDENTIALS.prompting(lambda _: PASSWORD):
                    took = _seconds(lambda: _first_reply(_ours("typed")))
                for text in CREDENTIALS.answers():
                    CREDENTIALS.forget(LoginPrompt(text))
                return took

            def theirs() -> float:
                subprocess.run(["ssh", "-F", config, "-O", "exit", "typed"], capture_output=True)

                def login() -> None:
                    argv = ["ssh", "-F", config, "-M", "-N", "-f", "typed"]
                    # Its output goes nowhere: the master stays, and would keep a pipe open.
                    subprocess.run(argv, env=environment, check=True, stdout=DEVNULL, stderr=DEVNULL)
                    _first_reply(_theirs("typed", config))

                return _seconds(login)

            made = _row("SSH by paramiko: a question answered, and first reply", ours, theirs, 5)
            subprocess.run(["ssh", "-F", config, "-O", "exit", "typed"], capture_output=True)
            return made
    finally:
        daemon.stop()


def _row(what: str, ours: Callable[[], float], theirs: Callable[[], float], runs: int) -> Row:
    mine, peer = in_turn(ours, theirs, runs=runs)
    return Row(what, mine, "s", PEER, peer, f"<= {CLEARLY:g} x", mine <= CLEARLY * peer)


def _ours(name: str) -> SshBackend:
    return SshBackend(BackendOptions(name, "ssh", f"ssh://{name}"))


def _theirs(name: str, config: str) -> SshBackend:
    return SshBackend(
        BackendOptions(name, "ssh", f"ssh://{name}", {"transport": "openssh", "config": config})
    )


@contextmanager
def _masters(it: Ground) -> Iterator[str]:
    """Give a configuration by which ``ssh`` keeps one connection for all."""
    folder = Path(it.environment["HOME"]) / ".ssh"
    config = folder / "config-masters"
    keep = f"Host *\n  ControlMaster auto\n  ControlPath {folder}/%C\n  ControlPersist 300\n"
    config.write_text((folder / "config").read_text() + keep)
    yield str(config)


@contextmanager
def _lent(host: Host) -> Iterator[None]:
    """Run this process's next sessions on an open connection, as commands do on the controller's."""
    assert isinstance(host, SharesSessions)
    SESSION_SHARING.use(_Lender(host))
    try:
        yield
    finally:
        SESSION_SHARING.use(None)  # type: ignore[arg-type] # as before


class _Lender:
    def __init__(self, host: SharesSessions) -> None:
        self._host = host

    def holds(self, options: BackendOptions) -> bool:
        return True

    def session(self, options: BackendOptions, command: str) -> Pipe | None:
        return self._host.session(command)


def _seconds(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def _first_reply(backend: SshBackend) -> None:
    with closing(backend.open()) as host:
        host.call("existing", paths=[])


def _journal(it: Ground) -> str:
    """Write a journal of a million lines at the host; return its folder."""
    folder = it.user.home / "journal"
    folder.mkdir(exist_ok=True)
    with (folder / "output.log").open("wb") as log, (folder / "output.idx").open("wb") as index:
        index.write(bytes(24))
        for end in range(PIECE_BYTES, LOG_BYTES + PIECE_BYTES, PIECE_BYTES):
            log.write(b"x" * (min(end, LOG_BYTES) - log.tell()))
            index.write(struct.pack("<QQQ", min(end, LOG_BYTES), 0, 0))
    for path in (folder, *folder.iterdir()):
        it.user.owns(path)
    return str(folder)


def _read_all(host: Host, folder: str) -> None:
    known: Mapping[str, int] = {}
    while known.get("output", 0) < LOG_BYTES:
        news = host.follow("bench", {folder: known}, timeout_seconds=10.0, early=lambda *_: None)
        known = {name: part.offset + len(part.data) for name, part in news[folder].items()}
