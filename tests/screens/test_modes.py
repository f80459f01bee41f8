"""The screens where a terminal can do less: sixteen colours, none, ASCII; every page at 80x24."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual.css.model import RuleSet
from textual.css.parse import parse

from screens.style.glyphs import glyphs, in_ascii
from tests.screens import seeding
from tests.screens.support import journey, opened
from tests.screens.test_terminal_bytes import _environment
from tests.support.screen_terminal import ENTRY, PtyTerminal
from workbench.job import Reason
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.updates.jobs import set_reason

PAGES = (
    (b"1", ("processing", "train/loss", "job folder|log of learner 1")),
    (b"2", ("step 19", "lines")),
    (b"3", ("train/accuracy", "train/loss")),
    (b"4", ("learner 1", "CPU")),
    (b"5", ("Values and their origins",)),
    (b"6", ("checkpoints/5.pt",)),
    (b"7", ("processing", "History")),
    (b"\x1bP", ("local", "answers in")),
    (b"\x1bQ", ("local", "mnist-next", "waits for 2 GPUs")),
    (b"\x1bgE", ("10 of 16 trials", "best 0.1161", "trial 6")),
    (b"\x1bn", ("backend", "start from|Not ready")),
    (b"\x1b?", ("type to find a key",)),
    (b"\x1b\x10", ("find a command",)),
)
"""Keys that open a page, and what is on it; the last of that is nowhere else."""
JOBS = (("completed", "mnist-baseline"), ("failed", "mnist-big"), ("processing", "mnist-wide"))
MORE_THAN_16 = re.compile(rb"\x1b\[[\d;]*[34]8[;:]")
ANY_COLOUR = re.compile(rb"\x1b\[(?:[\d;]*;)?(?:3[0-8]|4[0-8]|9\d|10\d)[;m]")


@dataclass(frozen=True, slots=True)
class Mode:
    """A terminal, and what it cannot show."""

    kind: Mapping[str, str]
    is_ascii: bool = False
    forbidden: re.Pattern[bytes] | None = None


MODES = {
    "16 colours": Mode({"TERM": "xterm-16color"}, forbidden=MORE_THAN_16),
    "no colour": Mode({"TERM": "xterm-256color", "NO_COLOR": "1"}, forbidden=ANY_COLOUR),
    "C locale": Mode({"TERM": "xterm-256color", "LC_ALL": "C"}, is_ascii=True),
    "console": Mode({"TERM": "linux"}, is_ascii=True, forbidden=MORE_THAN_16),
    "dumb": Mode({"TERM": "dumb"}, is_ascii=True, forbidden=ANY_COLOUR),
}
LACKS_LESS = pytest.mark.soak("lacks a part of what the gate's two lack; which it is, is a table below")


@pytest.fixture
def shown_home(home: Home) -> Home:
    """Four jobs, one of which waits, and a search; one job prints what no such terminal can show."""
    with Store.open(home) as store:
        running = seeding.three_runs(store)[2]
        waiting = seeding.add_job(store, 4, "mnist-next", age_seconds=900, gpus=2)
        set_reason(store, waiting.id, Reason("waits for 2 GPUs: mnist-wide holds 8 of 8"))
        seeding.search(store)
        seeding.sample(store, running, [(number, 40.0 + number, 1 << 30) for number in range(30)], gpus=2)
        seeding.remember_runs(store)
    writer = seeding.journal(home, running)
    writer.write("naïve 模型 ━━━━╸ 50% ███▌ ✓ 🚀\n".encode() + b"step 19 loss 0.115\n")
    return home


@pytest.mark.parametrize(
    "name",
    [
        "console",
        "dumb",
        *(pytest.param(name, marks=LACKS_LESS) for name in ("16 colours", "no colour", "C locale")),
    ],
)
def test_every_page_can_be_read_on_a_terminal_that_can_do_less(shown_home: Home, name: str) -> None:
    mode = MODES[name]
    argv = [sys.executable, "-c", ENTRY, "tui", "mnist-wide"]
    environment = {
        key: value
        for key, value in _environment(shown_home).items()
        if key not in ("COLORTERM", "FABRIC_ASCII")
    }
    terminal = PtyTerminal(argv, environment, (80, 24), kind=mode.kind)

    def see(*parts: str, gone: str = "") -> None:
        terminal.until(
            lambda: (
                all(re.search(part, terminal.shown) for part in parts)
                and not (gone and re.search(gone, terminal.shown))
            )
        )
        if mode.is_ascii:
            assert terminal.shown.isascii(), terminal.shown
            assert "???" not in terminal.shown, terminal.shown
        if mode.forbidden is not None:
            assert not mode.forbidden.search(bytes(terminal.seen)), mode.forbidden.search(
                bytes(terminal.seen)
            )

    try:
        see("1 overview")
        last = ""
        for keys, parts in PAGES:
            if keys.startswith(b"\x1b"):
                terminal.until_quiet(0.3)  # what closes a window is for one that is there
                terminal.type(b"\x1b")
                see("16 jobs", gone=last)  # a key that follows before would be one with alt
            terminal.type(keys.lstrip(b"\x1b"))
            see(*parts)
            last = parts[-1]
        terminal.type(b"\x1b")
        see("16 jobs", gone=last)
        for state, job in JOBS:  # no state is told by its colour alone
            see(f"{state} +{job}")
    finally:
        terminal.close()


def test_what_a_terminal_lacks_is_replaced_cell_by_cell() -> None:
    text = "naïve 模型 ━━━╸ 50% ███▌░ ✓ 🚀 … “x” → Ω"

    assert in_ascii(text) == 'naive ? ?  ---- 50% ####. + *  ~ "x" > ?'
    assert cell_len(in_ascii(text)) == cell_len(text)


@pytest.mark.parametrize(
    ("variables", "is_unicode"),
    [
        ({"LC_ALL": "C"}, False),
        ({"LC_ALL": "POSIX"}, False),
        ({"LC_ALL": "C.UTF-8", "TERM": "linux"}, False),
        ({"LC_ALL": "C.UTF-8", "TERM": "vt220"}, False),
        ({"LC_ALL": "C", "FABRIC_ASCII": "0"}, True),
        ({"TERM": "xterm", "FABRIC_ASCII": "1"}, False),
    ],
)
def test_the_environment_decides_which_signs_are_drawn(
    variables: dict[str, str], is_unicode: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "TERM", "FABRIC_ASCII"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    glyphs.cache_clear()
    try:
        assert glyphs().unicode == is_unicode
    finally:
        glyphs.cache_clear()


@journey
async def test_styles_are_parsed_once_for_the_same_colours(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = []

    def record(scope: str, css: str, read_from: tuple[str, str], **options: Any) -> Iterable[RuleSet]:
        parsed.append(Path(read_from[0]).name)
        return parse(scope, css, read_from, **options)

    monkeypatch.setattr("textual.css.stylesheet.parse", record)
    monkeypatch.setattr("tests.screens.support._RULES", {})  # what apps before have parsed
    async with opened(home, (120, 40)) as shown:
        await shown.until_shown("fabric › jobs")
        assert parsed.count("fabric.tcss") == 1
        before = shown.app.screen.styles.background
        shown.app.theme = "fabric-light"
        await shown.until(lambda: shown.app.screen.styles.background != before)
        assert parsed.count("fabric.tcss") == 2
