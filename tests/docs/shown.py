"""Fills the ``console`` blocks of the documentation with real output: ``python -m tests.docs.shown --write [PAGE]``.

Each page is one session in a fresh home and an empty working folder, its blocks in their order. A line that
begins with ``$ `` is run by bash with ``fabric`` on the path; what it prints, stderr included, stands below it.
A page may prepare files and jobs unseen, in a comment::

    <!-- before
    printf 'name: small\\n...' > manifest.yml
    -->

Ids, times and folders of the machine are made the same in every run, so that a page only changes when what
fabric says changes; ``--check`` compares what is left when numbers that vary are masked too.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.cli.called import forked_fabric
from tests.support.folders import make_folder
from tests.support.kept_agents import lend_agents
from tests.support.processes import end_processes_that_name
from tests.support.waiting import patience
from workbench.paths import Home

PAGES: Final = Path(__file__).parents[2] / "docs"
MARK: Final = "```console\n"
COLUMNS: Final = "110"
COMMAND_SECONDS: Final = 60

_BLOCK: Final = re.compile(r"```console\n(.*?)```|<!-- before\n(.*?)-->", re.DOTALL)
_ID: Final = re.compile(r"\b(training-|learner-)?([abcdefghjkmnpqrstuvwxyz23456789]{9})\b")
_PASSING: Final = re.compile(
    r"^(metrics: .*|\w{9} \S+ (runs|waits|stores its results).*|\w{9} \S+: (starting|downloading).*)\n",
    re.MULTILINE,
)
_ASIDE: Final = re.compile(r"^\w{9} the image \S+ is not used: .*\n", re.MULTILINE)
"""What is printed to stderr: before the first lines of the output or after them, as the machine is quick."""
_ALPHABET: Final = "k3v9qw2mxb7hjt4nz8cpay5rdu6gsef"


def pages() -> list[Path]:
    """Return the pages that show what commands print."""
    return sorted(page for page in PAGES.glob("*.md") if MARK in page.read_text(encoding="utf-8"))


def render(text: str) -> str:
    """Return a page with the output of every command made anew."""
    with session() as run:

        def filled(match: re.Match[str]) -> str:
            if match[2] is not None:
                run(match[2])
                return match[0]
            commands = [line[2:] for line in match[1].splitlines() if line.startswith("$ ")]
            return MARK + "".join(f"$ {command}\n{run(command)}" for command in commands) + "```"

        return _BLOCK.sub(filled, text)


@contextmanager
def session() -> Iterator[Session]:
    """Give a home and a working folder, and end everything that was started from them."""
    root = make_folder()
    try:
        with forked_fabric(root / "bin"):
            yield Session(root)
    finally:
        end_processes_that_name(str(root))
        shutil.rmtree(root, ignore_errors=True)


class Session:
    """Runs commands as the reader of a page would, and prints them as the page shows them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.work = root / "work"
        self.work.mkdir()
        (root / "run").mkdir(mode=0o700)
        lend_agents(self.home)
        self.environment = {
            "PATH": f"{root}/bin:{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(root),
            "FABRIC_LEASES": str(root / "leases"),
            "XDG_RUNTIME_DIR": str(root / "run"),
            "DOCKER_HOST": f"unix://{root}/no-engine.sock",
            "COLUMNS": COLUMNS,
            "LANG": "C.UTF-8",
            "USER": "ada",
            "LOGNAME": "ada",
            "GIT_CONFIG_GLOBAL": "/dev/null",
        }
        (root / "leases").mkdir(mode=0o1777)
        self._ids: dict[str, str] = {}

    @property
    def home(self) -> Home:
        """Where its jobs are."""
        return Home(self.root / ".local" / "share" / "fabric")

    def __call__(self, command: str) -> str:
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=patience(COMMAND_SECONDS),
        )
        assert "Traceback" not in ran.stdout, f"{command}\n{ran.stdout}"
        assert "fabric itself failed" not in ran.stdout, f"{command}\n{ran.stdout}"
        assert not re.search("^```", ran.stdout, re.MULTILINE), f"{command} prints what ends its block"
        self._learn_ids()
        return self._shown(ran.stdout)

    def _learn_ids(self) -> None:
        home = self.home.path
        files = [
            *home.glob("jobs/training-*/job.json"),
            *home.glob("experiments/experiment-*/experiment.json"),
        ]
        for file in sorted(files, key=lambda file: file.stat().st_mtime_ns):
            name = file.parent.name.partition("-")[2]
            if name not in self._ids:
                number = len(self._ids)
                self._ids[name] = "".join(_ALPHABET[(i * 7 + number * 11) % len(_ALPHABET)] for i in range(9))

    def _shown(self, text: str) -> str:
        shown = _ID.sub(lambda found: (found[1] or "") + self._ids.get(found[2], found[2]), text)
        shown = shown.replace(str(self.work), "~/work").replace(str(self.root), "~")
        host = os.uname().nodename
        shown = shown.replace(f"root@{host}", "ada@laptop").replace(f"ada@{host}", "ada@laptop")
        lines = (line.rstrip() for line in shown.replace("\r", "").splitlines())
        return "".join(f"{line}\n" for line in lines)


def masked(text: str) -> str:
    """Return a page without what differs from run to run: numbers, blanks, and lines that a slow run adds.

    What goes to stderr comes last, wherever it was printed.
    """
    text = _PASSING.sub("", text)
    text = _ASIDE.sub("", text) + "".join(_ASIDE.findall(text))
    text = re.sub(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?Z?)?", "TIME", text)
    text = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID", text)
    text = re.sub(r"\b[0-9a-f]{12,64}\b", "HASH", text)
    text = re.sub(r"\b\d+ (min|h|d|s|ms)( \d+ (s|min|h))?\b|\b\d+\.\d+ s\b", "A WHILE", text)
    text = re.sub(r"\d+(\.\d+)? (B|KiB|MiB|GiB)\b", "SIZE", text)
    return re.sub(r"[ \t]+", " ", re.sub(r"\d+(\.\d+)?(e-?\d+)?", "N", text))


def main(words: list[str]) -> int:
    """Write pages, or compare them; return the exit code."""
    action, names = (words[0] if words else ""), words[1:]
    chosen = [page for page in pages() if not names or page.stem in names or page.name in names]
    if action == "--write":
        for page in chosen:
            page.write_text(render(page.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    if action == "--check":
        stale = {page: lines for page in chosen if (lines := difference(page))}
        for page, lines in stale.items():
            sys.stderr.write(
                f"{lines}{page} is not current; python -m tests.docs.shown --write {page.stem}\n"
            )
        return 1 if stale else 0
    sys.stderr.write("python -m tests.docs.shown --write|--check [PAGE...]\n")
    return 64


def difference(page: Path) -> str:
    """Return what a page shows and what its commands print now, masked, as a diff; empty where it is current."""
    text = page.read_text(encoding="utf-8")
    shown, printed = (masked(each).splitlines(keepends=True) for each in (text, render(text)))
    return "".join(difflib.unified_diff(shown, printed, "shown", "printed", n=1))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
