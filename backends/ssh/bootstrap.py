"""Starts the agent on a host through one command's stdin and stdout; sends it first where the host has none.

It takes one round trip where the agent is installed already.
"""

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
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, Final

from backends.ssh.connection import Pipe
from workbench.errors import BackendError, BackendUnreachable, CannotWrite, ConfigError, NotAllowed
from workbench.learner.host import remote_loader
from workbench.learner.host.remote_loader import GREETING
from workbench.paths import Home, make_private_folder, write_private
from workbench.values import dataclass

HERE: Final = b"here"
"""Sent instead of a JSON report where the agent starts at once."""

SAFE: Final = re.compile(r"[A-Za-z0-9_./~+@%-]+")
"""What needs no quoting in any shell."""


@dataclass(frozen=True, slots=True)
class AgentLocation:
    """Where the agent was found on a host the last time."""

    machine: str
    """The machine's id: one name may lead to several machines."""
    python: str
    folder: str
    """The folder of agents."""
    home_uuid: str

    def shortcut(self, agent: str, home_uuid: str, *, python_first: bool) -> str:
        """Return the first part of a script for ``sh``: it executes the agent if machine and files are as before.

        Args:
            agent: the name of the agent's archive, without its suffix.
            home_uuid: whose agents.
            python_first: whether jobs find that Python before all others.
        """
        program = f"{self.folder}/{agent}/__main__.py"
        bin_folder = f"{self.folder.rpartition('/')[0]}/bin"
        parts = (self.machine, self.python, program, bin_folder)
        if home_uuid != self.home_uuid or not all(SAFE.fullmatch(text) for text in parts):
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
    """Return where the agent of a host was found, None for a host that was never reached."""
    try:
        return AgentLocation(**json.loads(home.host(f"{key}.way").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def cache_location(home: Home, key: str, found: Mapping[str, Any], home_uuid: str) -> None:
    """Cache where the agent was found. Failures are ignored: the next start is slower."""
    location = AgentLocation(str(found["machine"]), str(found["python"]), str(found["folder"]), home_uuid)
    path = home.host(f"{key}.way")
    temporary = path.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        make_private_folder(path.parent)
        write_private(temporary, json.dumps(asdict(location)))
        temporary.replace(path)


def forget_location(home: Home, key: str) -> None:
    """Remove the cached location; the agent is searched again the next time."""
    with contextlib.suppress(OSError):
        home.host(f"{key}.way").unlink(missing_ok=True)


PYTHONS: Final = ("python3", *(f"python3.{minor}" for minor in range(14, 7, -1)), "python")
START_SECONDS: Final = 30.0
NO_PYTHON: Final = b"no-python"
_NOISE_BYTES: Final = 256 * 1024
_CHUNK_BYTES: Final = 1 << 16
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)

_making: Final = threading.Lock()
_made: Final[list[str]] = []
"""The packed loader, made at its first use."""


class NoPython(Exception):
    """The host has no Python; the shell at the pipe's other end runs scripts from now on."""


class DiskFull(CannotWrite):
    """The disk of a host is full. Jobs wait for free space, as they wait for a host that does not answer."""

    exit_code = 69


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """Which agent to start on a host, and how."""

    agent: Path
    """The local path of the agent's archive, named by the hash of its content."""
    home_uuid: str
    root: str = ""
    python: str = ""
    """The path of a Python on the host; empty searches for one."""
    setup: str = ""
    """Shell commands whose changes of the environment apply to all jobs."""


def command_of(request: AgentRequest, location: AgentLocation | None = None) -> str:
    """Return the command line for the login shell on the host; sh, csh and fish parse it in the same way.

    Args:
        request: which agent.
        location: where it was found the last time, which is tried first.

    Raises:
        ConfigError: shells differ in how they parse the Python's name.
    """
    if request.python and not SAFE.fullmatch(request.python):
        raise ConfigError(
            f"{request.python!r} is not a path of a Python", hint="letters, digits and ./_+- only"
        )
    document = {
        "home": request.home_uuid,
        "root": request.root,
        "sha256": request.agent.stem,
        "size": request.agent.stat().st_size,
        "python": bool(request.python),
        "setup": request.setup,
    }
    loader = _packed_loader()  # csh takes no word of more than 8 KiB
    arguments = base64.b64encode(json.dumps(document).encode()).decode()
    pythons = request.python or " ".join(PYTHONS)
    shortcut = ""
    if location is not None and not request.setup:
        shortcut = location.shortcut(request.agent.stem, request.home_uuid, python_first=bool(request.python))
    return (
        f"exec sh -c '{shortcut}for p in {pythons}; do "
        '"$p" -ISc "import sys;sys.exit(sys.version_info<(3,8))" >/dev/null 2>&1 && '
        'exec "$p" -ISc "import sys,zlib,base64;exec(zlib.decompress(base64.b64decode(sys.argv[1])))" '
        f"{loader} {arguments}; done; "
        # Without a Python, the shell executes the scripts that follow.
        f"echo; echo fabric-arrival; echo {NO_PYTHON.decode()}; uname -sm; exec sh'"
    )


def start_agent(pipe: Pipe, request: AgentRequest, name: str) -> dict[str, Any]:
    """Start the agent, whose frames follow, and return the loader's report; empty if the cached location was right.

    Raises:
        BackendUnreachable: the host closed the connection, or does not answer.
        NoPython: the host has no Python.
        BackendError: the configured Python does not work.
        NotAllowed: its home folder is not writable.
        DiskFull: its disk is full.
    """
    late = threading.Timer(START_SECONDS, pipe.close)
    late.daemon = True
    late.start()
    try:
        found = _read_report(pipe, request, name)
        if not found["here"]:
            _send(request.agent, pipe.writer)
        return {} if found.get("known") else found
    except (OSError, ValueError) as error:
        raise BackendUnreachable(f"{name} hung up: {pipe.explain() or error}.") from error
    finally:
        late.cancel()


def _packed_loader() -> str:
    """Return the packed loader. It is made once, under a lock: ``ast`` of CPython 3.11 is not thread-safe."""
    with _making:
        if not _made:
            _made.append(base64.b64encode(zlib.compress(_loader().encode(), 9)).decode())
        return _made[0]


def _loader() -> str:
    """Return the loader's program without docstrings and comments."""
    import ast

    tree = ast.parse(Path(remote_loader.__file__).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.Module) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.unparse(tree)


def _read_report(pipe: Pipe, request: AgentRequest, name: str) -> dict[str, Any]:
    # Unbuffered: a buffer would keep the agent's first bytes, and frames are read without it.
    reader = getattr(pipe.reader, "raw", pipe.reader)
    noise = bytearray()
    while not noise.endswith(remote_loader.GREETING):
        byte = reader.read(1)
        if not byte or len(noise) > _NOISE_BYTES:
            raise _no_agent(pipe, bytes(noise), name)
        noise += byte
    line = reader.readline()
    if line.startswith(NO_PYTHON):
        machine = reader.readline().decode("utf-8", "replace").strip()
        if not request.python:
            raise NoPython
        raise BackendError(
            f"On {name} {request.python} is not Python 3.8 or newer ({machine}).",
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


def _no_agent(pipe: Pipe, noise: bytes, name: str) -> BackendUnreachable:
    text = _last_line(noise) or pipe.explain()
    if not text:
        return BackendUnreachable(
            f"{name} closed the session without a word.", hint="can you log in there with ssh?"
        )
    return BackendUnreachable(
        f"{name} runs no commands for us; it says: {text}.", hint="is the login shell there a real one?"
    )


def _last_line(noise: bytes) -> str:
    lines: Sequence[str] = noise.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip().rstrip(".") if lines else ""


def _send(agent: Path, writer: BinaryIO) -> None:
    with agent.open("rb") as stream:
        while data := stream.read(_CHUNK_BYTES):
            writer.write(data)
    writer.flush()
