"""Brings the agent to a host through one command's stdin and stdout, in one round trip where it is there already."""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import re
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from backends.ssh.connection import Pipe
from workbench.errors import BackendError, BackendUnreachable, CannotWrite, ConfigError, NotAllowed
from workbench.learner.host import remote_loader
from workbench.learner.host.remote_loader import GREETING
from workbench.paths import Home, make_private_folder, write_private

HERE: Final = b"here"
"""What is said in the place of JSON where the agent begins at once."""

SAFE: Final = re.compile(r"[A-Za-z0-9_./~+@%-]+")
"""What needs no quoting in any shell."""


@dataclass(frozen=True, slots=True)
class AgentLocation:
    """How the agent was started at a host the last time."""

    machine: str
    """Which machine that was: one name may lead to several."""
    python: str
    folder: str
    """Where agents are."""
    home_uuid: str

    def shortcut(self, agent: str, home_uuid: str, *, python_first: bool) -> str:
        """Return the start of a script for ``sh``: it becomes the agent, or goes on where anything is not as it was.

        Args:
            agent: the name of the agent's archive, without its suffix.
            home_uuid: whose agents.
            python_first: whether jobs find that Python before all others.
        """
        program = f"{self.folder}/{agent}/__main__.py"
        bin_folder = f"{self.folder.rpartition('/')[0]}/bin"
        told = (self.machine, self.python, program, bin_folder)
        if home_uuid != self.home_uuid or not all(SAFE.fullmatch(text) for text in told):
            return ""
        greeting = "; ".join(f"echo {line}" for line in (GREETING + HERE).decode().split("\n"))
        path = f"PATH={self.python.rpartition('/')[0]}:$PATH; " if python_first else ""
        return (
            f'm=; {{ read -r m </etc/machine-id; }} 2>/dev/null; if [ "$m" = {self.machine} ] && '
            f"[ -x {self.python} ] && [ -f {program} ]; then {path}"
            f"command -v python >/dev/null || PATH=$PATH:{bin_folder}; export PATH; cd /; {greeting}; "
            f"exec {self.python} -I -S {program} host; fi; "
        )


def cached_location(home: Home, key: str) -> AgentLocation | None:
    """Return what is known of the way to a host, None for one that was never reached."""
    try:
        return AgentLocation(**json.loads(home.place(f"{key}.way").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def remember_way(home: Home, key: str, found: Mapping[str, Any], home_uuid: str) -> None:
    """Keep what an arrival has found; a disk that takes nothing makes the next one slower."""
    way = AgentLocation(str(found["machine"]), str(found["python"]), str(found["folder"]), home_uuid)
    path = home.place(f"{key}.way")
    beside = path.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        make_private_folder(path.parent)
        write_private(beside, json.dumps(asdict(way)))
        beside.replace(path)


def forget_way(home: Home, key: str) -> None:
    """Look for the agent anew the next time."""
    with contextlib.suppress(OSError):
        home.place(f"{key}.way").unlink(missing_ok=True)


PYTHONS: Final = ("python3", *(f"python3.{minor}" for minor in range(14, 7, -1)), "python")
ARRIVE_SECONDS: Final = 30.0
NO_PYTHON: Final = b"no-python"
_NOISE_BYTES: Final = 256 * 1024
_CHUNK_BYTES: Final = 1 << 16
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)

_making: Final = threading.Lock()
_made: Final[list[str]] = []
"""The loader, packed, once somebody has needed it."""


class NoPython(Exception):
    """There is no Python; the shell that the pipe leads to takes scripts from now on."""


class DiskFull(CannotWrite):
    """A host whose disk takes no more: it waits for room, as one that does not answer waits for the link."""

    exit_code = 69


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """What is to run at a host."""

    agent: Path
    """The agent's archive here, named by its content."""
    home_uuid: str
    root: str = ""
    python: str = ""
    """Which Python there; empty looks for one."""
    setup: str = ""
    """Commands whose changes of the environment hold for all that is done there."""


def command_of(wanted: AgentRequest, way: AgentLocation | None = None) -> str:
    """Return the command line for whatever shell the host's user has: sh, csh and fish read it alike.

    Args:
        wanted: what is to run there.
        way: how it was started the last time, which is tried first.

    Raises:
        ConfigError: the Python's name would not mean the same in every shell.
    """
    if wanted.python and not SAFE.fullmatch(wanted.python):
        raise ConfigError(f"{wanted.python!r} is no path of a Python", hint="letters, digits and ./_+- only")
    told = {
        "home": wanted.home_uuid,
        "root": wanted.root,
        "sha256": wanted.agent.stem,
        "size": wanted.agent.stat().st_size,
        "python": bool(wanted.python),
        "setup": wanted.setup,
    }
    loader = _packed_loader()  # csh takes no word of more than 8 KiB
    arguments = base64.b64encode(json.dumps(told).encode()).decode()
    pythons = wanted.python or " ".join(PYTHONS)
    shortcut = ""
    if way is not None and not wanted.setup:
        shortcut = way.shortcut(wanted.agent.stem, wanted.home_uuid, python_first=bool(wanted.python))
    return (
        f"exec sh -c '{shortcut}for p in {pythons}; do "
        '"$p" -ISc "import sys;sys.exit(sys.version_info<(3,8))" >/dev/null 2>&1 && '
        'exec "$p" -ISc "import sys,zlib,base64;exec(zlib.decompress(base64.b64decode(sys.argv[1])))" '
        f"{loader} {arguments}; done; "
        # The shell itself then does what is written to it.
        f"echo; echo fabric-arrival; echo {NO_PYTHON.decode()}; uname -sm; exec sh'"
    )


def arrive(pipe: Pipe, wanted: AgentRequest, name: str) -> dict[str, Any]:
    """Bring the agent, whose frames follow; return what was found, nothing where the way was the remembered one.

    Raises:
        BackendUnreachable: the host hung up, or does not answer.
        OnlyShell: there is no Python.
        BackendError: the Python that was named is none.
        NotAllowed: its home cannot be written.
        NoRoom: its disk is full.
    """
    late = threading.Timer(ARRIVE_SECONDS, pipe.close)
    late.daemon = True
    late.start()
    try:
        found = _first_words(pipe, wanted, name)
        if not found["here"]:
            _send(wanted.agent, pipe.writer)
        return {} if found.get("known") else found
    except (OSError, ValueError) as error:
        raise BackendUnreachable(f"{name} hung up: {pipe.explain() or error}.") from error
    finally:
        late.cancel()


def _packed_loader() -> str:
    """Return the loader's program as it is sent; it is made once, by one thread: CPython 3.11's ``ast`` serves one."""
    with _making:
        if not _made:
            _made.append(base64.b64encode(zlib.compress(_loader().encode(), 9)).decode())
        return _made[0]


def _loader() -> str:
    """Return the loader's program without what only a reader needs."""
    import ast

    tree = ast.parse(Path(remote_loader.__file__).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.Module) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.unparse(tree)


def _first_words(pipe: Pipe, wanted: AgentRequest, name: str) -> dict[str, Any]:
    # Not through the buffer: it would keep the agent's first words, and frames are read past it.
    reader = getattr(pipe.reader, "raw", pipe.reader)
    noise = bytearray()
    while not noise.endswith(remote_loader.GREETING):
        byte = reader.read(1)
        if not byte or len(noise) > _NOISE_BYTES:
            raise _nobody(pipe, bytes(noise), name)
        noise += byte
    line = reader.readline()
    if line.startswith(NO_PYTHON):
        machine = reader.readline().decode("utf-8", "replace").strip()
        if not wanted.python:
            raise NoPython
        raise BackendError(
            f"On {name} {wanted.python} is no Python 3.8 or newer ({machine}).",
            hint="name another one with -o python=, or none: jobs run there without it",
        )
    if line.strip() == HERE:
        return {"here": True, "known": True}
    found: dict[str, Any] = json.loads(line)
    if "setup" in found:
        raise ConfigError(
            f"The setup of {name} failed: {found['setup']}.", hint="try it there: bash -lc '...'"
        )
    if "problem" in found:
        kind = DiskFull if found.get("errno") in _FULL else NotAllowed
        raise kind(
            f"{found['folder']} on {name} cannot be written: {found['problem']}.",
            hint="make room there, or name another folder: -o root=/path with fabric backend add",
        )
    return found


def _nobody(pipe: Pipe, noise: bytes, name: str) -> BackendUnreachable:
    said = _last_line(noise) or pipe.explain()
    if not said:
        return BackendUnreachable(
            f"{name} closed the session without a word.", hint="can you log in there with ssh?"
        )
    return BackendUnreachable(
        f"{name} runs no commands for us; it says: {said}.", hint="is the login shell there a real one?"
    )


def _last_line(noise: bytes) -> str:
    lines: Sequence[str] = noise.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip().rstrip(".") if lines else ""


def _send(agent: Path, writer: BinaryIO) -> None:
    with agent.open("rb") as stream:
        while data := stream.read(_CHUNK_BYTES):
            writer.write(data)
    writer.flush()
