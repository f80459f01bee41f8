"""Cached virtual environments of ``requirements``: built once under a lock, shared by jobs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from backends.contract.host import Host, Lock
from runners.interface import LaunchProgress, LaunchRequest
from runners.shared.host_facts import HostFacts
from runners.shared.interpreters import Interpreter, with_first
from workbench.errors import LaunchRefused
from workbench.learner.host.machine import INSTALLERS
from workbench.values import dataclass

FACTS_SECONDS: Final = 60.0
PROGRESS_SECONDS: Final = 5.0
"""The interval of progress reports for a build without output."""

ENDING_SECONDS: Final = 0.05
"""How long a build may take to exit after it has recorded its end."""

SHOWN_LINES: Final = 12
"""How many lines of a failed build's output are shown."""

_LOG_BYTES: Final = 1 << 20
_FACTS: Final = (
    "import json, platform, sys; "
    "print(json.dumps([sys.version, sys.base_prefix, platform.machine(), platform.platform()]))"
)


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment on a host, which may not exist yet."""

    key: str
    folder: str
    base: Interpreter
    """The interpreter that it is built with."""
    requirements: tuple[str, ...]

    @property
    def interpreter(self) -> Interpreter:
        """The interpreter of a job that uses the environment."""
        variables = with_first(self.base.variables, f"{self.folder}/bin") | {"VIRTUAL_ENV": self.folder}
        variables = {name: value for name, value in variables.items() if not name.startswith("CONDA_")}
        return Interpreter(f"{self.folder}/bin/python", variables, self.base.notes, self.key)


def environment_of(request: LaunchRequest, base: Interpreter, site: HostFacts, host: Host) -> Environment:
    """Return the environment for a job's requirements; its key is a hash of lines, interpreter and platform.

    Raises:
        LaunchRefused: the interpreter does not work.
    """
    lines = tuple(sorted({line.strip() for line in request.spec.requirements if line.strip()}))
    python = base.python or "python3"
    facts = host.run([python, "-c", _FACTS], env=dict(base.variables), deadline_seconds=FACTS_SECONDS)
    if facts.exit_code:
        raise refused(f"The interpreter {python} does not work", facts.stderr.decode("utf-8", "replace"))
    document = json.dumps([lines, json.loads(facts.stdout)])
    key = hashlib.sha256(document.encode()).hexdigest()
    return Environment(key, str(site.home.environments / key), base, lines)


def ensure(environment: Environment, site: HostFacts, host: Host, progress: LaunchProgress) -> list[str]:
    """Build an environment unless it exists, or wait for the process that builds it; return its packages.

    Raises:
        LaunchRefused: it cannot be built (C205); the hint has the last lines of the build's output.
    """
    while not host.call("existing", paths=[f"{environment.folder}/.complete"]):
        lock = lock_of(environment.key, site, host)
        if lock is not None:
            try:
                if not host.call("existing", paths=[f"{environment.folder}/.complete"]):
                    _start(environment, site, host, lock)
            finally:
                lock.release()
        _wait(environment, host, progress)
    packages = host.run(["cat", f"{environment.folder}/packages.txt"]).stdout
    return packages.decode("utf-8", "replace").splitlines()


def in_use(host: Host) -> set[str]:
    """Return the keys of environments in use: those that running processes were started with."""
    return set(host.call("markers", variable="FABRIC_ENVIRONMENT"))


def remove_environment(key: str, site: HostFacts, host: Host) -> bool:
    """Remove an unused environment; False if it is in use or being built."""
    lock = lock_of(key, site, host)
    if lock is None:
        return False
    try:
        if key in in_use(host):
            return False
        folder = str(site.home.environments / key)
        # .complete first: nobody may use an environment that is half removed.
        host.call("remove", paths=[f"{folder}/.complete"])
        host.call("remove", paths=[folder, *(folder + suffix for suffix in (".txt", ".py", ".log"))])
        return True
    finally:
        lock.release()


def lock_of(key: str, site: HostFacts, host: Host) -> Lock | None:
    """Lock an environment; None if it is locked."""
    folder = str(site.home.environments)
    host.call("make_folders", paths=[folder])
    return host.lock([f"{key}.lock"], folder=folder, text="{}")


def _start(environment: Environment, site: HostFacts, host: Host, lock: Lock) -> None:
    """Start a build in an empty folder; it holds the lock until it exits."""
    folder = environment.folder
    program = Path(__file__).parents[2] / "workbench" / "learner" / "host" / "virtualenv.py"
    host.call("remove", paths=[folder, f"{folder}.log"])
    host.call(
        "write_files",
        files={
            f"{folder}.txt": "".join(line + "\n" for line in environment.requirements),
            f"{folder}.py": program.read_text(),
        },
    )
    base = environment.base.python or "python3"
    argv = [site.python or "python3", f"{folder}.py", folder, f"{folder}.txt", base, site.uv]
    installers = {name: value for name, value in site.environment.items() if name.startswith(INSTALLERS)}
    variables = {**installers, **environment.base.variables}
    host.spawn(argv, env=variables, cwd="/", output=f"{folder}.log", holding=[lock])


def _wait(environment: Environment, host: Host, progress: LaunchProgress) -> None:
    """Wait until a build has ended, whoever started it; report its output as progress."""
    folder, log = environment.folder, f"{environment.folder}.log"
    ends = [f"{folder}/.complete", f"{folder}/.failed"]
    line = ""
    while True:
        found = host.call("existing", paths=ends)
        if ends[0] in found:
            return
        lines = tail(host, log)
        if host.call("is_free", path=f"{folder}.lock"):
            found = host.call("existing", paths=ends)
            if ends[0] in found:
                return
            what = "could not be built" if ends[1] in found else "is not there: its build was killed"
            # Read again: the last lines were written after the read above.
            raise refused(f"The environment of requirements: {what}", "\n".join(tail(host, log)))
        line = lines[-1] if lines else line or "builds the environment of requirements:"
        progress(line, stage="preparing")
        # While the lock is held, .failed is from an earlier build, or from this one just before its exit.
        host.watch([*ends, log], timeout_seconds=ENDING_SECONDS if found else PROGRESS_SECONDS)


def tail(host: Host, log: str) -> Sequence[str]:
    """Return the last lines of a build's log."""
    size = host.read({log: 0}, limit_bytes=0)
    if log not in size:
        return []
    start = max(0, size[log].end - _LOG_BYTES)
    text = host.read({log: start})[log].data.decode("utf-8", "replace")
    return [line for line in text.splitlines() if line.strip()][-SHOWN_LINES:]


def refused(sentence: str, log: str) -> LaunchRefused:
    """Return the error for a failed build; its hint has the last lines of the log."""
    lines = [line.rstrip() for line in log.strip().splitlines()][-SHOWN_LINES:]
    return LaunchRefused(f"{sentence}.", hint="\n".join(lines), code="C205")
