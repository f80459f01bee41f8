"""A learner that the ``sh`` agent keeps, with no Python on its path, read as a reader reads it from afar."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.learner.agent import Learner
from workbench.learner.boot import sh_launch
from workbench.learner.scribe.transcriber import Transcriber

NEEDED = (
    *("cat", "cp", "cut", "date", "dd", "env", "grep", "head"),
    *("ln", "mkdir", "mkfifo", "mv", "rm", "sed", "sleep", "tail", "tr"),
)
"""All that the agent runs; what it can do without is not in it."""
WELCOME = ("flock", "setsid", "taskset")

SHELLS = {"dash": ["dash"], "bash": ["bash"], "busybox": ["busybox", "sh"]}


class ShellMachine:
    """A shell and the tools beside it, and nothing else."""

    def __init__(self, folder: Path, shell: str, *, without: tuple[str, ...] = ()) -> None:
        self.tools = folder / "tools"
        self.tools.mkdir(parents=True)
        self.shell = [shutil.which(SHELLS[shell][0]) or "", *SHELLS[shell][1:]]
        applets: list[str] = []
        if shell == "busybox":
            listed = subprocess.run([self.shell[0], "--list"], capture_output=True, text=True, check=True)
            applets = listed.stdout.split()
        for tool in (*NEEDED, *WELCOME):
            found = shutil.which(tool)
            if shell == "busybox":
                found = self.shell[0] if tool in applets else None
            if found and tool not in without:
                (self.tools / tool).symlink_to(found)
        self.agent = folder / "agent.sh"
        self.agent.write_text(sh_launch.agent_script())

    @staticmethod
    def lacks(shell: str) -> str:
        """Say why there cannot be such a machine here; empty when there can."""
        if shutil.which(SHELLS[shell][0]) is None:
            return f"there is no {shell} on this machine"
        missing = [tool for tool in NEEDED if shutil.which(tool) is None]
        return f"the sh agent needs {', '.join(missing)}" if missing else ""


class ShLearner(Learner):
    """A learner in a folder, kept by the ``sh`` agent."""

    machine: ShellMachine

    def argv(self) -> list[str]:
        self.write_launch()
        return [*self.machine.shell, str(self.machine.agent), "guard", str(self.folder)]

    def write_launch(self) -> None:
        """Bring the launch document into its shell form."""
        secrets_file = ""
        if self.launch["secrets_file"]:
            secrets = json.loads(Path(self.launch["secrets_file"]).read_text())
            path = self.work / "secrets.sh"
            path.touch(mode=0o600)
            path.write_text(sh_launch.render_secrets(secrets))
            secrets_file = str(path)
        text = sh_launch.render(self.launch, learner_dir=str(self.folder), secrets_file=secrets_file)
        beside = self.folder / f"launch.sh.{os.getpid()}"
        beside.write_text(text)
        beside.rename(self.folder / "launch.sh")

    def start(self) -> subprocess.Popen[bytes]:
        with (self.folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.argv(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={"PATH": str(self.machine.tools), "LEAKED": "from the agent"},
                cwd=os.sep,
            )
        return self.process

    def start_sparing(self, seconds: float) -> subprocess.Popen[bytes]:
        script = self.machine.agent.read_text()
        hasty = script.replace("begin_ending 200 ", f"begin_ending {round(seconds * 100)} ")
        assert hasty != script
        self.machine.agent.write_text(hasty)
        return self.start()

    def read(self, name: str = "output") -> None:
        """Do what a reader does: publish what there is, and collect records."""
        with contextlib.closing(Transcriber(str(self.folder), self.launch, name=name)) as transcriber:
            if self.state().get("phase") == "exited":
                transcriber.finish()
            else:
                while transcriber.step():
                    pass

    def entries(self, name: str = "output") -> list[tuple[int, int, int]]:
        if (self.folder / f"{name}.log").exists():
            self.read(name)
        return super().entries(name)

    def records(self, kind: str = "") -> list[dict[str, Any]]:
        self.read()
        return super().records(kind)
