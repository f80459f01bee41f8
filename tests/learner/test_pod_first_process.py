"""What the first process of a pod's containers does with signals that come before Python handles them."""

from __future__ import annotations

import importlib.resources
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.learner.agent import Learner
from tests.support.waiting import patience, until

SCRIPT = importlib.resources.files("workbench.learner.pod") / "pod.sh"
SHELLS = {"dash": ["dash"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}


@pytest.mark.parametrize("role", ["prepare", "learner", "journal"])
@pytest.mark.parametrize("shell", SHELLS)
def test_a_signal_that_comes_before_python_begins_ends_it_without_a_word(
    tmp_path: Path, shell: str, role: str
) -> None:
    argv = SHELLS[shell]
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sh").symlink_to(shutil.which(argv[0]) or argv[0])
    hangs = folder / "python3"
    hangs.write_text(f"#!/bin/sh\n: >{tmp_path}/asked\nexec sleep 600\n")
    hangs.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}
    printed = tmp_path / "printed"
    with printed.open("wb") as output:
        first = subprocess.Popen(
            [*argv, str(SCRIPT), role], env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        until((tmp_path / "asked").exists, "the image's Python to be asked")

        first.send_signal(signal.SIGTERM)

        assert first.wait(30) == 143
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    assert printed.read_bytes() == b""


POD = """
import json, sys
from types import SimpleNamespace
from workbench.learner.pod import config, entrypoint
config.AGENT, config.TERMINATION, folder = sys.argv[1:]
launch = SimpleNamespace(setup="", grace_seconds=10.0)
sys.exit(entrypoint.PodInit(SimpleNamespace(folder=folder, launch=launch)).run())
"""


def test_an_agent_that_a_signal_has_stopped_sees_the_request_to_stop(tmp_path: Path) -> None:
    learner = Learner(tmp_path / "attempt-1", "trap 'exit 7' TERM; echo up; while :; do sleep 0.1; done")
    agent = learner.argv()[-3].rpartition("/")[0]
    first = subprocess.Popen(
        [sys.executable, "-c", POD, agent, str(tmp_path / "termination"), str(learner.folder)],
        stdout=subprocess.PIPE,
    )
    try:
        learner.until_printed(b"up\n")
        os.kill(learner.state()["pid"], signal.SIGSTOP)

        learner.stop()

        assert first.wait(patience()) == 7
        assert learner.state()["stopped"]
    finally:
        first.kill()
        first.communicate()
        learner.clear()
