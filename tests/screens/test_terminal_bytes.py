"""What is written to the terminal: only cells that change, and only when the terminal can take it."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from screens.app.terminal import TerminalPicture
from tests.screens import seeding
from tests.support.screen_terminal import ENTRY, Emulator, PtyTerminal
from tests.support.waiting import patience
from workbench.paths import Home
from workbench.store.db.database import Store
from workbench.store.queries.jobs import job

STYLES = [
    Style(),
    Style.parse("bold red on blue"),
    Style.parse("red on blue"),
    Style.parse("underline on blue"),
    Style.parse("green"),
    Style.parse("reverse"),
]


def _shown(line: list[Segment], width: int) -> list[tuple[str, str]]:
    """Return what a terminal shows of a line that is written to it whole."""
    emulator = Emulator(width, 1)
    emulator.write(
        "".join(Strip.render_style(s.style or Style(), s.text, ColorSystem.STANDARD) for s in line)
    )
    return emulator.cells[0]


_WIDTH, _HEIGHT = 14, 3
_text = st.one_of(st.text(st.sampled_from("ab  ─⣀漢"), min_size=1, max_size=6), st.just(" " * _WIDTH))
_line = st.lists(st.tuples(_text, st.sampled_from(STYLES)).map(lambda part: Segment(*part)), max_size=4)


def _strip(line: list[Segment], width: int) -> Strip:
    return Strip(line).adjust_cell_length(width, Style())


@given(st.lists(st.lists(_line, min_size=_HEIGHT, max_size=_HEIGHT), min_size=2, max_size=5), st.booleans())
def test_the_terminal_shows_what_was_drawn_last(frames: list[list[list[Segment]]], erases: bool) -> None:
    picture, terminal = TerminalPicture(erases=erases), Emulator(_WIDTH, _HEIGHT)
    for lines in frames:
        strips = [_strip(line, _WIDTH) for line in lines]
        picture.take(
            LayoutUpdate([[strip] for strip in strips], Region(0, 0, _WIDTH, _HEIGHT)), ColorSystem.STANDARD
        )

        terminal.write(picture.changes())

        assert terminal.cells == [_shown(list(strip), _WIDTH) for strip in strips]
        assert picture.changes() == ""


_rows = st.lists(_line, min_size=30, max_size=30)


@given(_rows, st.lists(st.integers(0, 18), min_size=2, max_size=6), _line, st.integers(0, 11))
def test_the_terminal_shows_text_that_moved_up_and_down(
    rows: list[list[Segment]], offsets: list[int], other: list[Segment], y: int
) -> None:
    """Margins, a scroll bar and a row that stays where it is are drawn, too."""
    picture, terminal = TerminalPicture(), Emulator(_WIDTH, 12)
    for offset in offsets:
        strips = [_strip(line, _WIDTH) for line in rows[offset : offset + 12]]
        strips[y] = _strip(other, _WIDTH)
        strips[offset % 12] = _strip([*strips[offset % 12].crop(0, _WIDTH - 1), Segment("─")], _WIDTH)
        picture.take(
            LayoutUpdate([[strip] for strip in strips], Region(0, 0, _WIDTH, 12)), ColorSystem.STANDARD
        )

        terminal.write(picture.changes())

        assert terminal.cells == [_shown(list(strip), _WIDTH) for strip in strips]
        assert picture.changes() == ""


@pytest.mark.parametrize("shift", [1, 3, -2])
def test_a_log_that_moves_is_scrolled_by_the_terminal(shift: int) -> None:
    picture = TerminalPicture()
    lines = [
        Strip([Segment(f"step {n:04} loss {n * 7919 % 1000 / 1000}")]).adjust_cell_length(40)
        for n in range(50)
    ]
    for offset in (10, 10 + shift):
        picture.take(
            LayoutUpdate([[strip] for strip in lines[offset : offset + 20]], Region(0, 0, 40, 20)),
            ColorSystem.STANDARD,
        )
        written = picture.changes()

    assert len(written) < 30 + abs(shift) * 60


@given(_line, _line, st.integers(0, _WIDTH - 4))
def test_a_part_of_a_line_that_is_drawn_anew_replaces_what_stood_there(
    before: list[Segment], part: list[Segment], x: int
) -> None:
    picture, terminal = TerminalPicture(), Emulator(_WIDTH, 1)
    picture.take(LayoutUpdate([[_strip(before, _WIDTH)]], Region(0, 0, _WIDTH, 1)), ColorSystem.STANDARD)
    terminal.write(picture.changes())
    whole = _strip(before, _WIDTH)
    ends = [x, x + 4, _WIDTH]
    chops = dict(zip([0, *ends], whole.divide(ends), strict=False))
    changed = {**dict.fromkeys(chops), x: _strip(part, 4)}

    picture.take(ChopsUpdate([changed], [(0, x, x + 4)], [ends if x else ends[1:]]), ColorSystem.STANDARD)
    terminal.write(picture.changes())

    expected = Strip.join([whole.crop(0, x), _strip(part, 4), whole.crop(x + 4, _WIDTH)])
    assert terminal.cells[0] == _shown(list(expected), _WIDTH)


@pytest.mark.parametrize(
    ("erases", "written"), [(True, "\x1b[1;1Hab\x1b[16X\x1b[16Cc"), (False, f"\x1b[1;1Hab{' ' * 16}c")]
)
def test_many_blanks_are_erased_where_that_fills_them_with_their_background(
    erases: bool, written: str
) -> None:
    picture = TerminalPicture(erases=erases)
    picture.take(
        LayoutUpdate([[Strip([Segment(f"ab{' ' * 16}c")])]], Region(0, 0, 19, 1)), ColorSystem.STANDARD
    )

    assert picture.changes() == written


def test_changes_along_a_row_go_on_from_where_the_cursor_stands() -> None:
    picture = TerminalPicture()
    for text in ("step 41 loss 0.25 images/s 801", "step 42 loss 0.24 images/s 799"):
        picture.take(LayoutUpdate([[Strip([Segment(text)])]], Region(0, 0, 30, 1)), ColorSystem.STANDARD)
        changes = picture.changes()

    assert changes == "\x1b[1;7H2\x1b[9C4\x1b[10C799"


def test_behind_a_sign_that_some_terminals_draw_twice_as_wide_the_cursor_is_placed() -> None:
    picture = TerminalPicture()
    for text in ("\u25cc one ---------- 1", "\u25cf one ---------- 2"):
        picture.take(LayoutUpdate([[Strip([Segment(text)])]], Region(0, 0, 18, 1)), ColorSystem.STANDARD)
        changes = picture.changes()

    assert changes == "\x1b[1;1H\u25cf\x1b[1;18H2"


def test_a_changed_cell_is_written_alone_and_a_redraw_writes_all() -> None:
    picture = TerminalPicture()
    for text in ("step 41 loss 0.25", "step 42 loss 0.25"):
        picture.take(LayoutUpdate([[Strip([Segment(text)])]], Region(0, 0, 17, 1)), ColorSystem.STANDARD)
        changes = picture.changes()

    assert changes == "\x1b[1;7H2"
    picture.forget()
    assert picture.changes() == "\x1b[1;1Hstep 42 loss 0.25"


# The real thing


def _environment(home: Home) -> Mapping[str, str]:
    return {**os.environ, "FABRIC_HOME": str(home.path), "LC_ALL": "C.UTF-8", "FABRIC_NO_CONTROLLER": "1"}


@pytest.fixture
def ended(home: Home) -> Home:
    with Store.open(home) as store:
        seeding.many_runs(store, 2000)
        seeding.remember_runs(store)
    return home


def test_an_idle_list_of_ended_jobs_writes_nothing_and_a_key_little(ended: Home) -> None:
    terminal = PtyTerminal([sys.executable, "-c", ENTRY, "tui"], _environment(ended))
    try:
        terminal.until(lambda: "sweep-01999" in terminal.shown)
        terminal.until_quiet(3.0)  # so it was silent over several ticks
        before = terminal.count
        for _ in range(10):
            terminal.type(b"j")
            terminal.until_quiet(0.3)
        assert 0 < (terminal.count - before) / 10 < 1800  # twice what a plain DataTable writes
    finally:
        terminal.close()


KEY_BYTES_WITH_PREVIEW = 6000
"""What a key may write that changes a preview, which is half of the screen: a curve's signs have three bytes each."""


def test_an_idle_list_with_a_filled_preview_writes_nothing_and_a_key_no_more_than_that_holds(
    ended: Home,
) -> None:
    with Store.open(ended) as store:
        rows = [job(store, seeding.job_id(1999 - at)) for at in range(12)]
        seeding.print_and_report(store, [row for row in rows if row is not None])
    terminal = PtyTerminal([sys.executable, "-c", ENTRY, "tui"], _environment(ended))
    try:
        terminal.until(lambda: "epoch 59 loss" in terminal.shown and "train/loss" in terminal.shown)
        terminal.until_quiet(3.0)  # so it was silent over several ticks
        before = terminal.count
        for at in range(1, 11):
            terminal.type(b"j")
            last = f"epoch 59 loss {(at + 1) / 60:.4f}"
            terminal.until(lambda last=last: last in terminal.shown)  # type: ignore[misc]
            terminal.until_quiet(0.3)
        assert 0 < (terminal.count - before) / 10 < KEY_BYTES_WITH_PREVIEW
    finally:
        terminal.close()


def test_a_list_with_a_job_at_work_writes_little(ended: Home) -> None:
    """Its time, curve and preview change each second."""
    with Store.open(ended) as store, seeding.working(store):
        terminal = PtyTerminal([sys.executable, "-c", ENTRY, "tui"], _environment(ended))
        try:
            terminal.until(lambda: "CPUs" in terminal.shown)  # that line moves the list down when it comes
            written = _bytes_per_second(terminal, r"step (\d+) loss", 10)

            assert 0 < written < 1000  # some twenty lines of its log move up
        finally:
            terminal.close()


def _bytes_per_second(terminal: PtyTerminal, number: str, more: int) -> float:
    """Return how much is written while a number that is shown grows by so much; the highest one counts."""

    def shown() -> int:
        return max((int(found.replace(",", "")) for found in re.findall(number, terminal.shown)), default=0)

    terminal.until(lambda: shown() > 0)
    start = shown()
    terminal.until(lambda: shown() > start)  # the first picture is drawn
    before, first = terminal.count, shown()
    took = terminal.until(lambda: shown() >= first + more)
    return (terminal.count - before) / took


@pytest.fixture
def chatty(home: Home) -> Iterator[Home]:
    """A job that prints a thousand lines a second."""
    with Store.open(home) as store:
        row = seeding.go(store, seeding.add_job(store, 1, "chatty"), *seeding.RUN_UP)
    with seeding.printing(home, row):
        yield home


def test_a_key_is_shown_soon_on_a_slow_terminal_next_to_a_fast_log(chatty: Home) -> None:
    argv = [sys.executable, "-c", ENTRY, "tui", "chatty"]
    terminal = PtyTerminal(argv, _environment(chatty), bytes_per_second=20_000, delay_seconds=0.2)
    try:
        terminal.until(lambda: "1 overview" in terminal.shown)
        terminal.type(b"l")
        terminal.until(lambda: "loss" in terminal.shown)
        shown = terminal.count
        terminal.until(lambda: terminal.count > shown + 60_000)  # frames have queued up where they can
        terminal.type(b"?")

        took = terminal.until(lambda: "esc closes" in terminal.shown)

        assert took < 3.0  # two thirds of a second is the link's; frames that queue take 14 s and more
    finally:
        terminal.close()


def test_a_log_that_is_scrolled_up_writes_little_while_a_thousand_lines_a_second_come(chatty: Home) -> None:
    terminal = PtyTerminal([sys.executable, "-c", ENTRY, "tui", "chatty"], _environment(chatty))
    try:
        terminal.until(lambda: "1 overview" in terminal.shown)
        terminal.type(b"l")
        terminal.until(lambda: "follow" in terminal.shown and "loss" in terminal.shown)
        terminal.type(b"kkkkk")

        written = _bytes_per_second(terminal, r"\+([\d,]+) new lines", 5000)

        assert 0 < written < 2000  # its rows stay; what is new is counted
    finally:
        terminal.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(three: Home, number: signal.Signals) -> None:
    terminal = PtyTerminal([sys.executable, "-c", ENTRY, "tui"], _environment(three))
    try:
        terminal.until(lambda: "mnist-wide" in terminal.shown)

        terminal.process.send_signal(number)

        assert terminal.process.wait(patience()) == 128 + number
        terminal.until(lambda: b"\x1b[?1049l" in terminal.seen and b"\x1b[?25h" in terminal.seen)
        terminal.until(lambda: b"fabric tui opens the screens again" in terminal.seen)
    finally:
        terminal.close()


def test_a_burst_of_keys_is_typed_into_the_line_that_its_first_opens(three: Home) -> None:
    terminal = PtyTerminal([sys.executable, "-c", ENTRY, "tui"], _environment(three))
    try:
        for keys, there in (
            (b"/state:fai\t\r", "1 of 3"),  # before a line that is known could complete it
            (b"/state:failed\r", "1 of 3"),
            (b":filter state:failed\r", "1 of 3"),
            (b"/name:wide\r/state:failed name:none\r", "no job matches"),
        ):
            terminal.until(lambda: "3 jobs" in terminal.shown and "of 3" not in terminal.shown)

            terminal.type(keys)

            terminal.until(lambda there=there: there in terminal.shown)  # type: ignore[misc]
            terminal.type(b"\x1b")  # takes the filter away
    finally:
        terminal.close()
