"""A learner in a folder, kept by its real agent in real processes."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeVar

from tests.support.kept_agents import agent
from tests.support.waiting import LIMIT_SECONDS, ended, patience, until
from workbench.learner.boot import archive
from workbench.learner.journal import state
from workbench.learner.journal.output import ENTRY, HEADER
from workbench.learner.platform import processes

HOME_UUID = "0b9c2f4e-home"
JOB = "training-abcdefghj"
Found = TypeVar("Found")
NOTES_WAITS = """
import os, select, time
class Poll:
    def __init__(self):
        self._poll = poll()
    def __getattr__(self, name):
        return getattr(self._poll, name)
    def poll(self, milliseconds=None):
        found = self._poll.poll(milliseconds)
        if milliseconds is not None:
            note(milliseconds / 1000, bool(found))
        return found
def note(seconds, is_woken):
    file = os.open({FILE}, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(file, b"%f %s\\n" % (seconds, b"woken" if is_woken else b"over"))
    os.close(file)
def sleep_noted(seconds):
    sleep(seconds)
    note(seconds, False)
poll, select.poll = select.poll, Poll
sleep, time.sleep = time.sleep, sleep_noted
"""
"""Lines of Python that let an agent note its waits."""


def remove_folder(folder: Path) -> None:
    """Remove a folder in which a learner's agents still write: a file that they make meanwhile is removed, too."""

    def is_gone() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    until(is_gone)


def oldest_python() -> str | None:
    """Find a Python 3.8, as old as the agent promises to run on."""
    candidates = [shutil.which("python3.8") or ""]
    # The tests have a home of their own: the user's is found through the password file.
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    for folder, pattern in (
        (home / ".pyenv/versions", "3.8.*/bin/python3.8"),
        (home / ".local/share/uv/python", "cpython-3.8.*/bin/python3.8"),
        (Path("/opt"), "python3.8*/bin/python3.8"),
    ):
        candidates += map(str, sorted(folder.glob(pattern)))
    return next((path for path in candidates if path and _runs(path)), None)


def _runs(python: str) -> bool:
    ran = subprocess.run(
        [python, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, check=False
    )
    return ran.stdout.strip() == b"(3, 8)"


class Learner:
    """One learner of an attempt. ``document`` overrides keys of its launch document."""

    def __init__(
        self, attempt: Path, command: str, *, learner: int = 1, python: str = sys.executable, **document: Any
    ) -> None:
        self.folder = attempt / f"learner-{learner}"
        self.folder.mkdir(parents=True)
        self.work = attempt / f"work-{learner}"
        self.work.mkdir()
        (attempt / "job" / "logs").mkdir(parents=True, exist_ok=True)
        self.python = python
        self.process: subprocess.Popen[bytes] | None = None
        self.launch: dict[str, Any] = {
            "format": 1,
            "home": HOME_UUID,
            "owner": "me@box",
            "job": JOB,
            "attempt": 1,
            "learner": learner,
            "learners": 1,
            "command": command,
            "setup": "",
            "shell": "bash",
            "cwd": str(self.work),
            # Unique a test, so that a leftover of another one is never taken for ours.
            "env": {"PATH": os.environ["PATH"], "WORK": str(self.work), "PYTHON": sys.executable},
            "secrets_file": None,
            "grace_seconds": 10.0,
            "settle_seconds": 60.0,
            "ends_when": "first",
            "max_runtime_seconds": None,
            "memory_bytes": None,
            "cpus": None,
            "slots": [],
            "usage_seconds": 0,
            "attempt_dir": str(attempt),
            "log_dir": str(attempt / "job" / "logs"),
            "log_dir_shared": True,
            "metrics": None,
        }
        self.launch.update(document)
        self.rewrite(attempt=document.get("attempt", _number(attempt)))

    def rewrite(self, **document: Any) -> None:
        """Change keys of the launch document before the start."""
        self.launch.update(document)
        (self.folder / "launch.json").write_text(json.dumps(self.launch))

    @property
    def marker(self) -> str:
        return f"{HOME_UUID}/{JOB}/{self.launch['attempt']}/{self.launch['learner']}"

    def argv(self) -> list[str]:
        return archive.guard_argv(self.python, agent(), str(self.folder))

    def start_with(self, *preparation: str) -> subprocess.Popen[bytes]:
        """Start it after some lines of Python that change what the agent finds."""
        folder = self.argv()[-3].rpartition("/")[0]
        lines = ["import sys", f"sys.path.insert(0, {folder!r})", *preparation]
        lines += ["from workbench.learner.main import main", "sys.exit(main(sys.argv[1:]))"]
        argv = [self.python, "-I", "-S", "-c", "\n".join(lines), "guard", str(self.folder)]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
        return self.process

    def start_sparing(self, seconds: float) -> subprocess.Popen[bytes]:
        """Start it with an agent that gives what a command leaves behind so long to end."""
        return self.start_with(
            "from workbench.learner.guard import guard", f"guard.LEFTOVER_SECONDS = {seconds}"
        )

    def start_noting_waits(self) -> subprocess.Popen[bytes]:
        """Start it with agents that note how long they wait, and whether to the end; see :meth:`waits`."""
        return self.start_with(NOTES_WAITS.replace("{FILE}", repr(str(self.work / "waits"))))

    def waits(self) -> list[tuple[float, bool]]:
        """Return how long each wait could take in seconds, and whether it took so long."""
        path = self.work / "waits"
        lines = path.read_text().splitlines() if path.exists() else []
        return [
            (float(line.split()[0]), line.endswith("over"))
            for line in lines
            if line.endswith(("over", "woken"))
        ]

    def start(self) -> subprocess.Popen[bytes]:
        with (self.folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.argv(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        return self.process

    def run(self, seconds: float = LIMIT_SECONDS) -> dict[str, Any]:
        """Keep it from start to end; return its state."""
        self.start()
        return self.wait(seconds)

    def run_again(self) -> bool:
        """Send another agent, as one does who does not know how far it came; return whether the end is recorded."""
        assert subprocess.run(self.argv(), check=False).returncode == 0
        return self.state().get("phase") == "exited"

    def wait(self, seconds: float = LIMIT_SECONDS) -> dict[str, Any]:
        """Wait until its guard has ended; return its state."""
        assert self.process is not None
        code = ended(self.process, lambda: f"the guard to end: {self.state()} {self.log()}", seconds=seconds)
        assert code == 0, (code, self.log())
        found = self.state()
        assert found.get("phase") == "exited", (found, self.log())
        return found

    def log(self) -> str:
        path = self.folder / "agent.log"
        return path.read_text() if path.exists() else ""

    def state(self) -> dict[str, Any]:
        try:
            document: dict[str, Any] = json.loads((self.folder / "state.json").read_text())
        except FileNotFoundError:
            return {}
        return document

    def until_phase(self, phase: str) -> dict[str, Any]:
        return until(
            lambda: found if (found := self.state()).get("phase") == phase else {},
            lambda: f"the phase {phase}: {self.state()} {self.log()}",
        )

    def until_printed(self, text: bytes) -> bytes:
        return until(
            lambda: found if text in (found := self.output()) else b"",
            lambda: f"{text!r} to be printed: {self.state()} {self.log()}",
        )

    def stop(self, kind: str = "halt", **more: Any) -> None:
        state.ask_to_stop(str(self.folder), {"kind": kind, "by": "me@box", **more})

    def entries(self, name: str = "output") -> list[tuple[int, int, int]]:
        path = self.folder / f"{name}.idx"
        data = path.read_bytes() if path.exists() else b""
        whole = (len(data) - HEADER.size) // ENTRY.size
        return [ENTRY.unpack_from(data, HEADER.size + n * ENTRY.size) for n in range(max(0, whole))]

    def output(self, name: str = "output") -> bytes:
        """Return what is published."""
        entries = self.entries(name)
        return (self.folder / f"{name}.log").read_bytes()[: entries[-1][0]] if entries else b""

    def records(self, kind: str = "") -> list[dict[str, Any]]:
        lines = (self.folder / "records.jsonl").read_bytes().splitlines(keepends=True)
        records = [json.loads(line) for line in lines[1:] if line.endswith(b"\n")]
        return [record for record in records if not kind or record["kind"] == kind]

    def scribe(self) -> int:
        return int(self.state().get("scribe_pid") or 0)

    def left(self) -> list[int]:
        """Return what still runs of it."""
        return processes.find(self.marker)

    def clear(self) -> list[int]:
        """Leave nothing behind; return what had to be ended."""
        if self.process is not None and self.process.poll() is None:
            self.stop("kill")
            try:
                self.process.wait(patience(10))
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        left = self.left()
        processes.end(self.marker, 0.0)
        return left


def kill(pid: int, number: int = signal.SIGKILL) -> bool:
    """Signal a process; return whether there was one."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _number(attempt: Path) -> int:
    """Make a number of a folder's name that hardly another test's has."""
    return abs(hash(str(attempt))) % 10**9 + 1
