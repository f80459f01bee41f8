"""The screens in a real terminal: started by the command, typed at, resized, hung up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.screens import seeding
from tests.support.controllers import end_all
from tests.support.waiting import patience, until
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries import requests
from workbench.store.queries.jobs import list_jobs

TMUX = shutil.which("tmux")
LOOK_SECONDS = 0.1
"""Each look starts a tmux."""
pytestmark = pytest.mark.skipif(
    TMUX is None, reason="tmux is not installed: no real terminal to test the screens in"
)

START = "import sys; from fabric_workbench import main; sys.exit(main())"
TELL_CODE = '"$@"; echo $? > "$0"'
"""Runs a command and writes its exit code to a file: tmux does not always know it."""


class Terminal:
    """A terminal of tmux's with the screens in it."""

    def __init__(self, folder: Path, home: Home) -> None:
        self.base = [str(TMUX), "-S", str(folder / "tmux.sock"), "-f", os.devnull]
        self.home = home
        self.code = folder / "exit-code"
        self.environment = {
            **os.environ,
            "FABRIC_HOME": str(home.path),
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
        }

    def __call__(self, *args: str) -> str:
        """Run a command of tmux's."""
        ran = subprocess.run(
            [*self.base, *args], env=self.environment, capture_output=True, text=True, check=True
        )
        return ran.stdout

    def start(self, width: int, height: int, *args: str) -> None:
        """Start ``fabric tui``; the terminal stays when it ends."""
        command = ["sh", "-c", TELL_CODE, str(self.code), sys.executable, "-c", START, "tui", *args]
        # tmux starts its commands in its server's environment, which is this one's.
        self("new-session", "-d", "-x", str(width), "-y", str(height), *command)
        self("set-option", "remain-on-exit", "on")

    def screen(self) -> str:
        """Return what is on the screen."""
        return self("capture-pane", "-p")

    def keys(self, *names: str) -> None:
        """Type."""
        self("send-keys", *names)

    def until(self, condition: Callable[[str], bool]) -> str:
        """Wait until something holds of the screen."""
        shown = ""

        def holds() -> bool:
            nonlocal shown
            shown = self.screen()
            return condition(shown)

        until(holds, lambda: f"something else than this screen:\n{shown}", every=LOOK_SECONDS)
        return shown

    def until_shown(self, *parts: str) -> str:
        """Wait until all of these are on the screen."""
        return self.until(lambda shown: all(part in shown for part in parts))

    def until_left(self, *parts: str) -> None:
        """Wait until all of these are on the terminal that was left, or above it.

        tmux makes room for a line of its own when a command ends.
        """
        self.until(lambda _: all(part in self("capture-pane", "-p", "-S", "-") for part in parts))


@pytest.fixture
def terminal(clean_environment: Path, home: Home) -> Iterator[Terminal]:
    with Store.open(home) as store:
        seeding.three_runs(store)
    made = Terminal(clean_environment, home)
    yield made
    subprocess.run([*made.base, "kill-server"], capture_output=True)


def test_a_tour_at_80x24(terminal: Terminal) -> None:
    terminal.start(80, 24)
    terminal.until_shown("1 overview", "mnist-wide", "● processing")  # the first time: the newest running job
    terminal.keys("l")
    terminal.until_shown("step 19 loss", "follow")
    terminal.keys("]")
    terminal.until_shown("train/accuracy", "⣀")
    terminal.keys("Escape")
    terminal.until_shown("fabric › jobs", "mnist-big", "3 jobs")
    terminal.keys("j", "Enter", "d")
    terminal.until_shown("use a smaller batch")
    terminal.keys("?")
    terminal.until_shown("Keys", "esc closes")
    terminal.keys("Escape")  # with a key right behind it, it would be alt and that key
    terminal.until(lambda shown: "esc closes" not in shown)
    terminal.keys("q")
    terminal.until_shown("3 jobs")
    terminal.keys("q")
    terminal.until(lambda _: terminal.code.exists() and terminal.code.read_text() == "0\n")
    terminal.until_left("1 job is still running or waiting:", "mnist-wide")


def test_it_fits_itself_to_a_terminal_that_changes_its_size(terminal: Terminal) -> None:
    terminal.start(200, 60)
    terminal.until_shown("1 overview", "mnist-wide")
    terminal.keys("Escape")
    terminal.until_shown("3 jobs", "trend", "why")
    terminal("resize-window", "-x", "80", "-y", "24")
    terminal.until(lambda shown: "3 jobs" in shown and "why" not in shown)
    terminal("resize-window", "-x", "40", "-y", "10")
    terminal.until_shown("fabric needs 60x15, this is 40x10")
    terminal("resize-window", "-x", "120", "-y", "40")
    terminal.until_shown("3 jobs", "mnist-big")


def test_readonly_is_shown_and_nothing_is_changed(terminal: Terminal) -> None:
    terminal.start(80, 24, "--readonly")
    terminal.until_shown("read-only", "mnist-wide")
    terminal.keys("x")
    terminal.until_shown("read-only: the screens were")


def test_what_happens_in_the_store_is_seen(terminal: Terminal) -> None:
    terminal.start(120, 40, "mnist-baseline")
    terminal.until_shown("mnist-baseline", "completed")
    terminal.keys("Escape")
    terminal.until_shown("3 jobs")
    with Store.open(terminal.home) as store:
        seeding.add_job(store, 9, "newcomer")
    terminal.until_shown("4 jobs", "newcomer")


def test_a_terminal_that_hangs_up_ends_it_and_it_opens_again_where_it_was(terminal: Terminal) -> None:
    terminal.start(80, 24)
    terminal.until_shown("1 overview")
    terminal.keys("Escape")
    terminal.until_shown("3 jobs")
    terminal.keys("s", "s")
    terminal.until(lambda shown: shown.index("mnist-baseline") < shown.index("mnist-wide"))
    terminal.until(lambda shown: _remembered(terminal.home, "name"))
    pane = psutil.Process(int(terminal("display-message", "-p", "#{pane_pid}")))
    processes = [pane, *pane.children(recursive=True)]
    assert len(processes) == 2

    terminal("kill-session")

    assert psutil.wait_procs(processes, timeout=patience())[1] == []

    terminal.start(80, 24)

    terminal.until(
        lambda shown: "3 jobs" in shown and shown.index("mnist-baseline") < shown.index("mnist-wide")
    )


def test_who_leaves_while_many_jobs_are_being_deleted_leaves_none_of_them_out(
    clean_environment: Path, home: Home
) -> None:
    with Store.open(home) as store:
        seeding.many_runs(store, 800)
        seeding.remember_runs(store)
    terminal = Terminal(clean_environment, home)
    try:
        terminal.start(120, 40)
        terminal.until_shown("sweep-00799")
        terminal.keys("Space", "G", "v")
        terminal.until_shown("800 marked")
        terminal.keys("D")
        terminal.until_shown("Delete 800 jobs?")
        terminal.keys("sweep-00799", "Enter", "C-q")
        terminal.until(lambda _: terminal.code.exists() and terminal.code.read_text() == "0\n")
        terminal.until_left("delete 800 jobs: ", "ctrl-c leaves the rest undone", "delete 800 jobs: done")
    finally:
        subprocess.run([*terminal.base, "kill-server"], capture_output=True)
        end_all(home)

    with Store.open(home) as store:  # a controller has removed some, and taken up others
        asked = {one.job_id for one in requests.pending_requests(store) if one.kind == "delete"}
        left = [row for row in list_jobs(store) if row.id not in asked]
        assert [row.name for row in left if row.intent != "delete"] == []


def _remembered(home: Home, sort: str) -> bool:
    from screens.core.memory import MEMORY_KEY
    from workbench.store.queries.ui_state import get_state

    with Store.open(home) as store:
        return bool(get_state(store, MEMORY_KEY, {}).get("sort") == sort)
