"""One SSH connection to a host, over its jump hosts: each key checked, each login by key, one command run."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from backends.contract.host import Ask
from backends.ssh import known_hosts
from backends.ssh.auth import log_in
from backends.ssh.config import PORT, Hop
from backends.ssh.sockets import (
    COMPLAINT_SECONDS,
    ChannelPipe,
    connect,
    explanation_of,
    first_words_of,
    unreachable,
)
from workbench.errors import BackendUnreachable, ConfigError, FabricError, NotAllowed
from workbench.values import dataclass

CONNECT_SECONDS: Final = 10.0
WINDOW_BYTES: Final = 8 << 20
PACKET_BYTES: Final = 1 << 17
"""What the other side may send at once. Measured on loopback: twice the throughput of the usual 32 KiB."""
BANNER_SECONDS: Final = 15.0

_QUIET: Final = logging.getLogger("paramiko")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False
_QUIET.setLevel(logging.CRITICAL)


class UnknownHostKey(ConfigError):
    """A host whose key nobody has accepted yet."""


class Pipe(Protocol):
    """A command at the other end: its stdin and stdout."""

    reader: BinaryIO
    writer: BinaryIO

    def explain(self) -> str:
        """Return the last line that it complained with, or empty."""

    def close(self) -> None:
        """End it."""


@dataclass(slots=True)
class SshConnection:
    """A connection over one hop or several."""

    route: Sequence[Hop]
    agent_socket: str = ""
    ask: Ask | None = None
    """Where a person can be asked."""
    _transports: list[Any] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What to call the host at its end."""
        return self.route[-1].label

    @property
    def reached_at(self) -> str:
        """The name or address by which the last one before it reaches it."""
        return self.route[-1].host

    def open(self) -> None:
        """Connect and log in.

        Raises:
            BackendUnreachable: a host does not answer.
            ConfigError: a host's key is not known, or is not the known one.
            NotAllowed: a host does not let us in.
        """
        try:
            for hop in self.route:
                self._add(hop)
        except BaseException:
            self.close()
            raise

    def run(self, command: str) -> ChannelPipe:
        """Run a command on the last host and return its stdin and stdout.

        Raises:
            BackendUnreachable: the host gives no session.
        """
        import paramiko

        hop, transports = self.route[-1], list(self._transports)
        if not transports:
            raise BackendUnreachable(f"The connection to {hop.label} is closed.")
        try:
            channel = transports[-1].open_session(
                window_size=WINDOW_BYTES, max_packet_size=PACKET_BYTES, timeout=CONNECT_SECONDS
            )
            channel.exec_command(command)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise BackendUnreachable(
                f"{hop.label} gives no session: {error or 'it hung up'}.",
                hint="see MaxSessions in its sshd_config",
            ) from error
        return ChannelPipe(channel)

    def close(self) -> None:
        """Hang up."""
        for transport in reversed(self._transports):
            with contextlib.suppress(Exception):  # closing while another thread uses it may raise anything
                transport.close()
        self._transports.clear()

    def _add(self, hop: Hop) -> None:
        import paramiko

        seconds = hop.connect_seconds or CONNECT_SECONDS
        stream = self._stream(hop, seconds)
        try:
            transport = paramiko.Transport(stream, WINDOW_BYTES, PACKET_BYTES)
        except BaseException:
            stream.close()
            raise
        self._transports.append(transport)
        try:
            self._log_in(hop, transport, seconds)
        except BackendUnreachable as error:
            if not (words := explanation_of(stream, COMPLAINT_SECONDS)):
                raise
            message = f"{error.message.rstrip('.')}; its ProxyCommand says: {words}."
            raise BackendUnreachable(message, hint=error.hint) from error

    def _log_in(self, hop: Hop, transport: Any, seconds: float) -> None:
        import paramiko

        transport.banner_timeout = transport.handshake_timeout = BANNER_SECONDS
        known = known_hosts.entries_of(hop.known_name, hop.known_hosts)
        _prefer_known(transport, known)
        began = time.monotonic()
        try:
            transport.start_client(timeout=BANNER_SECONDS + seconds)
            key = transport.get_remote_server_key()  # where it gave none in time, this raises
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise _no_ssh(hop, transport, error, time.monotonic() - began) from error
        transport.set_keepalive(int(hop.alive_seconds) or 15)
        self._check(hop, key.get_name(), key.asbytes(), known)
        log_in(transport, hop, self.agent_socket, BANNER_SECONDS)

    def _stream(self, hop: Hop, seconds: float) -> Any:
        import paramiko

        if not self._transports:
            return connect(hop, seconds)
        try:
            return self._transports[-1].open_channel(
                "direct-tcpip", (hop.host, hop.port), ("127.0.0.1", 0), timeout=seconds
            )
        except (paramiko.SSHException, OSError, EOFError) as error:
            before = self.route[len(self._transports) - 1]
            text = getattr(error, "text", "") or str(error)
            message = (
                f"{before.label} does not reach {hop.host} port {hop.port}: {text.strip() or 'it hung up'}."
            )
            raise BackendUnreachable(message) from unreachable(hop, error)

    def _check(self, hop: Hop, kind: str, key: bytes, known: Sequence[known_hosts.KnownHostsEntry]) -> None:
        checked = known_hosts.check(kind, key, known)
        fingerprint = known_hosts.fingerprint(key)
        if checked.verdict == "known":
            return
        if (
            checked.verdict in ("unknown", "authority")
            and self.ask is not None
            and self.ask(hop.label, fingerprint)
        ):
            known_hosts.accept(hop.known_name, kind, key, _file_to_write(hop))
            return
        raise _refusal(hop, self.route[-1], fingerprint, kind, checked)


def session_on(connection: SshConnection | None, command: str) -> Pipe:
    """Run one more command on a connection, if it is one of ours.

    Raises:
        BackendUnreachable: the host gives no session, or something else holds its connection.
    """
    if connection is None:
        raise BackendUnreachable("The connection to the backend is not held by this process.")
    return connection.run(command)


def _no_ssh(hop: Hop, transport: Any, error: Exception, seconds: float) -> BackendUnreachable:
    """Return the error that says how far a host came which took a connection and gave no key within some seconds.

    One that falls silent or hangs up is not one that speaks something else: a firewall or too many logins under way
    look like that.
    """
    words = first_words_of(transport.sock)
    # paramiko raises the same error for a host that is silent and for one that hangs up; its context differs.
    is_silent = isinstance(error.__context__, TimeoutError) or seconds >= BANNER_SECONDS
    if words and not words.startswith("SSH-"):
        return BackendUnreachable(f"{hop.label} does not speak SSH: it says {words[:80]!r}.")
    if is_silent and transport.remote_version:
        found = f"begins to speak SSH, but does not go on for {seconds:.0f} s"
    elif is_silent:
        found = f"accepts a connection, but says nothing {'more ' if words else ''}for {seconds:.0f} s"
    elif words == "" and not transport.remote_version:
        found = "accepts a connection and hangs up without a word"
    else:
        return BackendUnreachable(f"{hop.label} does not speak SSH: {str(error) or 'it hung up'}.")
    return BackendUnreachable(
        f"{hop.label} {found}.",
        hint="a firewall between may hold it back, or its sshd is overloaded (MaxStartups in its sshd_config), "
        "or something else listens there",
    )


def _file_to_write(hop: Hop) -> Path:
    return hop.known_hosts[0] if hop.known_hosts else Path("~/.ssh/known_hosts").expanduser()


def _prefer_known(transport: Any, known: Sequence[known_hosts.KnownHostsEntry]) -> None:
    """Ask for the type of key that is known: a host has several."""
    kinds = {entry.kind for entry in known if not entry.marker}
    if "ssh-rsa" in kinds:
        kinds |= {"rsa-sha2-512", "rsa-sha2-256"}
    options = transport.get_security_options()
    # Measured on loopback: GCM carries 1.5 times as much as CTR with a MAC of its own.
    options.ciphers = sorted(options.ciphers, key=lambda cipher: "gcm" not in cipher)
    options.key_types = sorted(options.key_types, key=lambda kind: kind not in kinds)


def _refusal(
    hop: Hop, last: Hop, fingerprint: str, kind: str, checked: known_hosts.HostKeyCheck
) -> FabricError:
    entry = checked.entry
    if checked.verdict == "changed" and entry is not None:
        return NotAllowed(
            f"The key of {hop.label} is NOT the one that is known: it shows {kind} {fingerprint}, and {entry.file} has "
            f"another one on line {entry.line}. Somebody may be listening, or the machine was set up again.",
            hint=f"ask who runs it; only if it was set up again: ssh-keygen -R '{hop.known_name}' -f {entry.file}",
        )
    if checked.verdict == "revoked" and entry is not None:
        return NotAllowed(
            f"The key of {hop.label} is revoked, by {entry.file} on line {entry.line}.",
            hint="do not connect to it; ask who runs it",
        )
    pin = f"fabric backend test {_address_of(last)} --accept-key {fingerprint}"
    if checked.verdict == "authority":
        return UnknownHostKey(
            f"{hop.label} is known by a certificate authority only, which is not checked; "
            f"it shows {kind} {fingerprint}.",
            hint=f"compare that with what its owner says, then: {pin}",
        )
    return UnknownHostKey(
        f"The key of {hop.label} is not known: it shows {kind} {fingerprint}.",
        hint=f"compare that with what its owner says, then: {pin}",
    )


def _address_of(hop: Hop) -> str:
    port = "" if hop.port == PORT else f":{hop.port}"
    return f"ssh://{hop.user}@{hop.alias}{port}"
