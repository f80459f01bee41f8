"""Finds the route to an SSH host in OpenSSH's configuration files, ``Include`` and jump hosts too."""

from __future__ import annotations

import getpass
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from workbench.errors import ConfigError
from workbench.values import dataclass

_HIDDEN: Final = "invoke"
_MATCH_SECONDS: Final = 30.0
_importing = threading.Lock()


def load_paramiko() -> Any:  # the package has no types
    """Import and return the package; its parser of configuration files runs commands as :class:`_MatchCommand`."""
    with _importing:
        hidden = _HIDDEN not in sys.modules and "paramiko" not in sys.modules
        if hidden:
            sys.modules[_HIDDEN] = None  # type: ignore[assignment] # makes importing it fail, which paramiko expects
        try:
            import paramiko
            import paramiko.config
        finally:
            if hidden:
                sys.modules.pop(_HIDDEN, None)
        paramiko.config.invoke = _MatchCommand
        return paramiko


@dataclass(frozen=True, slots=True)
class _MatchCommand:
    """The command of a ``Match exec``, run as ssh runs it: by the user's shell, without input or output.

    Paramiko takes the package ``invoke`` for it, which reads our standard input and so takes it from the command
    that the user runs on the host.
    """

    ok: bool

    @classmethod
    def run(cls, command: str, **_options: Any) -> _MatchCommand:
        """Run the command to its end, or kill it with all that it has started.

        Raises:
            TimeoutError: it did not end in time.
        """
        argv = [os.environ.get("SHELL") or "/bin/sh", "-c", command]
        with subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, process_group=0
        ) as process:
            try:
                return cls(process.wait(_MATCH_SECONDS) == 0)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise TimeoutError(
                        f"the command of Match exec did not end within {_MATCH_SECONDS:g} seconds: {command}"
                    ) from None
                raise


_ADDRESS: Final = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@/\s]+)@)?(?P<host>\[[0-9A-Fa-f:.%]+\]|[^@:/\s\[\]]+)(?::(?P<port>\d+))?/?"
)
_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """Where an address leads; what it does not say is for ``~/.ssh/config`` to say."""

    host: str
    user: str = ""
    port: int = 0


def parse_address(text: str) -> Address:
    """Read an address, with or without ``ssh://``.

    Raises:
        ConfigError: it is none.
    """
    found = _ADDRESS.fullmatch(text.strip())
    port = int(found["port"] or 0) if found else 0
    # A host that begins with a dash would be an option of ssh's.
    if found is None or port > _PORT_MAX or found["host"].startswith("-"):
        raise ConfigError(
            f"{text!r} is not an address of an SSH host",
            hint="write ssh://host, ssh://me@host or ssh://me@host:2222",
        )
    return Address(found["host"].strip("[]"), found["user"] or "", port)


SYSTEM_FILE: Final = Path("/etc/ssh/ssh_config")
DEFAULT_KEYS: Final = ("id_ed25519", "id_ecdsa", "id_rsa")
USER_KNOWN_HOSTS: Final = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
SYSTEM_KNOWN_HOSTS: Final = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
PORT: Final = 22
_DEPTH_MAX: Final = 16
_HOPS_MAX: Final = 8
_HEADER: Final = re.compile(r"\s*(host|match)\b[\s=]", re.IGNORECASE)
_INCLUDE: Final = re.compile(r"\s*include(?:\s+|\s*=\s*)(.+?)\s*$", re.IGNORECASE)
_MARK: Final = "fabricincludes"


@dataclass(frozen=True, slots=True)
class Hop:
    """One host of a route, and how to log in to it."""

    alias: str
    host: str
    port: int
    user: str
    identities: tuple[Path, ...] = ()
    """Key files, in the order in which they are tried."""
    identities_named: bool = False
    """Whether the configuration named them."""
    certificates: tuple[Path, ...] = ()
    only_identities: bool = False
    """Whether the agent's other keys are not to be offered."""
    known_as: str = ""
    """Under which name its key is looked up, if not its own."""
    known_hosts: tuple[Path, ...] = ()
    """The user's file first."""
    proxy_command: str = ""
    connect_seconds: float = 0.0
    """What the configuration allows for connecting; 0 leaves it to us."""
    alive_seconds: float = 0.0

    @property
    def known_name(self) -> str:
        """Its name in known_hosts."""
        name = (self.known_as or self.host).lower()
        return name if self.known_as or self.port == PORT else f"[{name}]:{self.port}"

    @property
    def label(self) -> str:
        """Its name in messages."""
        return self.alias if self.alias == self.host else f"{self.alias} ({self.host})"


class SshConfig:
    """OpenSSH's configuration: the user's file (``~/.ssh/config`` unless another is named), then the system's."""

    def __init__(self, file: Path | None = None) -> None:
        self._files = (file or Path("~/.ssh/config").expanduser(), SYSTEM_FILE)

    def route(self, address: Address) -> tuple[Hop, ...]:
        """Return the hosts of the route to an address, the one that is reached directly first.

        Raises:
            ConfigError: the files cannot be read, or lead in a circle.
        """
        return self._route(address, ())

    def _route(self, address: Address, before: tuple[str, ...]) -> tuple[Hop, ...]:
        if address.host in before or len(before) > _HOPS_MAX:
            raise ConfigError(f"the jump hosts of {before[0]} lead in a circle", hint="see ~/.ssh/config")
        options = self._options(address.host)
        jumps: list[Hop] = []
        for word in _jumps(options):
            jump = parse_address(word)
            # As ssh does: only the first is asked for jumps of its own, the others are reached through it.
            jumps += (
                [self._hop(jump, self._options(jump.host))]
                if jumps
                else self._route(jump, (*before, address.host))
            )
        return (*jumps, self._hop(address, options))

    def _hop(self, address: Address, options: Mapping[str, Any]) -> Hop:
        identities = [str(path) for path in options.get("identityfile", ()) if path.lower() != "none"]
        has_identities = bool(options.get("identityfile"))
        paths = identities if has_identities else [f"~/.ssh/{name}" for name in DEFAULT_KEYS]
        known_as = str(options.get("hostkeyalias", ""))
        return Hop(
            alias=address.host,
            host=str(options.get("hostname", address.host)),
            port=address.port or _number(options, "port", PORT),
            user=address.user or str(options.get("user", "")) or getpass.getuser(),
            identities=tuple(Path(path).expanduser() for path in paths),
            identities_named=has_identities,
            certificates=_paths(options, "certificatefile", ()),
            only_identities=_is_yes(options, "identitiesonly"),
            known_as=known_as,
            known_hosts=(
                *_paths(options, "userknownhostsfile", USER_KNOWN_HOSTS),
                *_paths(options, "globalknownhostsfile", SYSTEM_KNOWN_HOSTS),
            ),
            proxy_command="" if options.get("proxyjump") else str(options.get("proxycommand") or ""),
            connect_seconds=float(_number(options, "connecttimeout", 0)),
            alive_seconds=float(_number(options, "serveraliveinterval", 0)),
        )

    def _options(self, alias: str) -> Mapping[str, Any]:
        text = "".join(self._text(alias))
        paramiko = load_paramiko()
        try:
            found: Mapping[str, Any] = paramiko.SSHConfig.from_text(text).lookup(alias)
        except (
            Exception
        ) as error:  # a line may be wrong in any way, and paramiko's parser has no root of errors
            raise ConfigError(
                f"the SSH configuration cannot be read for {alias}: {error}",
                hint='`ssh -G HOST` says what ssh makes of it; transport = "openssh" leaves it to ssh',
            ) from error
        return found

    def _text(self, alias: str) -> Iterator[str]:
        for file in self._files:
            yield "Host *\n"
            yield from self._expanded(file, alias, 0)

    def _expanded(self, file: Path, alias: str, depth: int) -> Iterator[str]:
        """Yield the lines of a file, and of the files that it includes for this host."""
        header = "Host *"
        for line in _lines(file):
            if _HEADER.match(line):
                header = line.strip()
            found = _INCLUDE.match(line)
            if found is None:
                yield line.rstrip("\r\n") + "\n"
                continue
            if depth >= _DEPTH_MAX:
                raise ConfigError(f"{file} includes files more than {_DEPTH_MAX} deep")
            if header != "Host *" and not _applies(header, alias):
                continue
            for included in _included(found[1], file):
                yield from self._expanded(included, alias, depth + 1)
                yield header + "\n"


def _lines(file: Path) -> Sequence[str]:
    try:
        return file.read_text(errors="replace").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error


def _included(patterns: str, file: Path) -> Iterator[Path]:
    base = SYSTEM_FILE.parent if file.is_relative_to(SYSTEM_FILE.parent) else Path("~/.ssh").expanduser()
    for word in shlex.split(patterns):
        path = base / Path(word).expanduser()
        yield from sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))


def _applies(header: str, alias: str) -> bool:
    paramiko = load_paramiko()
    try:
        found = paramiko.SSHConfig.from_text(f"{header}\n{_MARK} yes\n").lookup(alias)
    except Exception:  # reported when the whole text is read
        return True
    return _MARK in found


def _jumps(options: Mapping[str, Any]) -> Sequence[str]:
    text = str(options.get("proxyjump") or "")
    return () if text.lower() in ("", "none") else [word.strip() for word in text.split(",")]


def _paths(options: Mapping[str, Any], name: str, default: Sequence[str]) -> tuple[Path, ...]:
    value = options.get(name)
    words = list(default) if value is None else shlex.split(str(value))
    return tuple(Path(word).expanduser() for word in words if word.lower() != "none")


def _is_yes(options: Mapping[str, Any], name: str) -> bool:
    return str(options.get(name, "")).lower() in ("yes", "true")


def _number(options: Mapping[str, Any], name: str, default: int) -> int:
    text = str(options.get(name, default))
    if not text.isdigit():
        return default
    return int(text)
