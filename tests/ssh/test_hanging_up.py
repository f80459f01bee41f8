"""A host that is gone in the middle of something is away: no exception of paramiko's gets out, and no key is blamed."""

from __future__ import annotations

import contextlib
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import paramiko
import pytest

from backends.contract.host import Host
from backends.ssh import bootstrap
from backends.ssh.auth import TOO_MANY, log_in
from backends.ssh.config import Hop
from backends.ssh.sockets import ChannelPipe
from tests.ssh.relay import Relay
from tests.support.box import Box
from tests.support.sshd import runs
from tests.support.waiting import until
from workbench.errors import BackendUnreachable, NotAllowed
from workbench.learner.host import remote_loader


class Gone:
    """A channel whose connection has ended: paramiko says so in many ways."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def send(self, data: bytes) -> int:
        raise self._error

    def recv(self, size: int) -> bytes:
        raise self._error


@pytest.mark.parametrize(
    "error", [EOFError(), paramiko.SSHException("Key-exchange timed out"), OSError("Socket is closed")]
)
def test_what_is_sent_or_awaited_fails_as_a_streams_end_does(error: Exception) -> None:
    pipe = ChannelPipe(Gone(error))

    with pytest.raises(OSError):
        pipe.writer.write(b"x")
    with pytest.raises(OSError):
        pipe.reader.read(1)


@pytest.mark.parametrize("size", [1 << 16, 1 << 22])
def test_a_session_that_is_killed_while_much_is_sent_is_a_backend_that_is_away(box: Box, size: int) -> None:
    host = box.backend().open()
    errors: list[BaseException] = []

    def send() -> None:
        try:
            while True:
                host.run(["cat"], stdin=bytes(size))
        except BaseException as error:
            errors.append(error)

    sender = threading.Thread(target=send)
    sender.start()

    def heard() -> bool:
        box.daemon.kill_sessions()
        return bool(errors)

    until(heard, "the sender to hear of it")
    sender.join()
    host.close()

    assert isinstance(errors[0], BackendUnreachable), errors


class HangsUp:
    """A host that is gone once so many keys were tried."""

    auth_timeout = 0.0

    def __init__(self, keys: int) -> None:
        self._left = keys

    def auth_publickey(self, user: str, key: Any) -> list[str]:
        self._left -= 1
        text = "Authentication failed." if self._left else "Authentication failed: transport shut down"
        raise paramiko.AuthenticationException(text)

    def is_active(self) -> bool:
        return self._left > 0


def keys(folder: Path, count: int) -> tuple[Path, ...]:
    paths = tuple(folder / f"id_{number}" for number in range(count))
    for path in paths:
        paramiko.RSAKey.generate(1024).write_private_key_file(str(path))
    return paths


def hop_with(identities: tuple[Path, ...]) -> Hop:
    return Hop(alias="box", host="127.0.0.1", port=22, user="me", identities=identities)


def test_a_host_that_hangs_up_at_the_first_key_is_away(tmp_path: Path) -> None:
    with pytest.raises(BackendUnreachable, match="closed the connection during the login"):
        log_in(HangsUp(1), hop_with(keys(tmp_path, 2)), "", 5.0)


def test_a_host_that_hangs_up_after_many_keys_takes_none_of_them(tmp_path: Path) -> None:
    with pytest.raises(NotAllowed, match="takes none of our keys"):
        log_in(HangsUp(TOO_MANY), hop_with(keys(tmp_path, TOO_MANY)), "", 5.0)


def test_an_agent_whose_link_was_cut_without_a_word_ends_and_gives_back_what_it_held(box: Box) -> None:
    relay = Relay(box.daemon)
    box.known_hosts.write_text(
        box.known_hosts.read_text() + box.daemon.known_line(f"[127.0.0.1]:{relay.port}")
    )
    relayed = box.backend(f"ssh://{box.user.name}@127.0.0.1:{relay.port}", silent_seconds="1")
    held, leases = ["gpu-1"], str(box.user.home / "leases")
    try:
        host = relayed.open()
        assert host.lock(held, folder=leases, text="before the cut") is not None
        waiting = threading.Thread(target=_run_without_end, args=(host,))
        waiting.start()
        until(lambda: runs(box.user, b"4242"), "the command to run")
        with closing(box.backend().open()) as other:
            assert other.lock(held, folder=leases, text="after the cut") is None
            relay.freeze()
            until(lambda: not runs(box.user, b"4242"), "the command to end with its agent")
            until(lambda: other.lock(held, folder=leases, text="after") is not None, "the lock")
    finally:
        relay.end()
    waiting.join()
    host.close()


def _run_without_end(host: Host) -> None:
    with contextlib.suppress(BackendUnreachable):
        host.run(["sleep", "4242"], deadline_seconds=600)


@pytest.mark.new_host
def test_the_first_agent_that_never_comes_whole_is_not_waited_for_for_ever(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "_loader", _impatient_loader)
    monkeypatch.setattr(bootstrap, "_made", [])
    monkeypatch.setattr(bootstrap, "_send", lambda agent, writer: writer.write(b"half of it"))
    monkeypatch.setattr(bootstrap, "START_SECONDS", 600.0)

    with pytest.raises(BackendUnreachable):
        box.backend().open()

    assert not list(box.user.home.rglob("*.new-*"))


def _impatient_loader() -> str:
    return Path(remote_loader.__file__).read_text().replace("SILENT_SECONDS = 60.0", "SILENT_SECONDS = 0.1")
