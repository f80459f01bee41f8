"""The terminal: an app that writes to it only the cells that change, and only when it can take them.

Textual writes every line of a widget that was refreshed. Over a slow link that is what a person waits for; and a frame
that is not written at once can be left out here, since the next difference holds it.

On a slow link frames would queue up: in the thread that writes, in the kernel, and most of all in the buffers of SSH.
So a frame is written only when the last ones have arrived. The thread that writes says when the kernel has taken them.
The terminal itself says when they have reached it: it is asked for the position of its cursor, which every terminal
answers, and it answers in the order of what it is sent.
"""

from __future__ import annotations

import contextlib
import curses
import os
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import groupby, repeat
from operator import itemgetter
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.style import Style
from textual import events
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Offset, Size
from textual.message import Message
from textual.screen import Screen
from textual.strip import Strip

from screens.style.glyphs import glyphs, in_ascii

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual.driver import Driver
    from textual.widget import Widget

GAP_CELLS: Final = 4
"""Two changes so near to each other are written as one: to move the cursor takes as many bytes."""
SCROLL_MOST_ROWS: Final = 8
"""By so many rows text may have moved to be scrolled by the terminal itself."""
SCROLL_SAVES_ROWS: Final = 3
"""Scrolling is worth its bytes from so many rows on that need not be written."""
EDGE_CELLS: Final = 3
"""So many cells at the right may differ in rows that moved: a scroll bar stays where it is."""
ERASE_CELLS: Final = 11
"""So many blanks take more bytes than to have the terminal erase them and to move on behind them."""
_SINGLE: Final = re.compile(
    "[\x20-\x7e\xa1-\xac\xae-\u02ff\u0370-\u0482\u2500-\u25fc\u2800-\u28ff]*"
).fullmatch
"""Text whose every character is one cell wide."""
_EXACT: Final = re.compile("[\x20-\x7e\u2500-\u259f\u2800-\u28ff]").fullmatch
"""Letters, lines, blocks and braille are one cell wide; signs may be two on terminals set to East Asian widths."""


class Pen(NamedTuple):
    """How a cell is drawn, as parameters of SGR."""

    attributes: str = ""
    colour: str = ""
    background: str = ""
    is_plain: bool = True
    """Whether a blank shows none of the attributes."""
    is_blank: bool = False
    """Whether it draws blanks alone, of which only the background is seen."""


PLAIN: Final = Pen()
BLANK: Final = PLAIN._replace(is_blank=True)
Cell = tuple[str, Pen]
"""A character with what combines with it, and its pen; the second half of a wide one is empty."""
_UNKNOWN: Final[Cell] = ("?", Pen("unknown"))
_SEEN_ON_BLANKS: Final = frozenset({"4", "5", "6", "7", "9", "21", "51", "52", "53"})


@lru_cache(maxsize=4096)
def _pens(style: Style | None, colours: ColorSystem) -> tuple[Pen, Pen]:
    """Return the pen of a style, and the one for its blanks."""
    if style is None:
        return PLAIN, BLANK
    attributes = Strip.render_ansi(style.without_color, colours)
    colour = style.color.downgrade(colours).get_ansi_codes() if style.color else ()
    background = style.bgcolor.downgrade(colours).get_ansi_codes(foreground=False) if style.bgcolor else ()
    plain = _SEEN_ON_BLANKS.isdisjoint(attributes.split(";"))
    pen = Pen(attributes, ";".join(colour), ";".join(background), plain)
    return pen, Pen("", "", pen.background, is_blank=True) if plain else pen


def _cells(strip: Strip, colours: ColorSystem) -> list[Cell]:
    cells: list[Cell] = []
    is_ascii = not glyphs().unicode
    for written, style, _ in strip:
        text = in_ascii(written) if is_ascii and not written.isascii() else written
        pen, blank = _pens(style, colours)
        if _SINGLE(text):
            if " " in text:
                cells += [(sign, blank if sign == " " else pen) for sign in text]
            else:
                cells += zip(text, repeat(pen), strict=False)
        else:
            cells += _wide_cells(text, pen, blank)
    return cells


def _wide_cells(text: str, pen: Pen, blank: Pen) -> list[Cell]:
    """Return the cells of a text in which some characters are not one cell wide."""
    cells: list[Cell] = []
    for sign in text:
        width = cell_len(sign)
        if width == 0 and cells:
            at = len(cells) - 1
            while at and not cells[at][0]:
                at -= 1
            cells[at] = (cells[at][0] + sign, cells[at][1])
        elif width:
            cells += [(sign, blank if sign == " " else pen), *[("", pen)] * (width - 1)]
    return cells


def _blank_halves(line: list[Cell], x: int) -> None:
    """Replace a wide character that is cut at a cell by blanks, as terminals do."""
    if x >= len(line) or line[x][0]:
        return
    start = end = x
    while start and not line[start][0]:
        start -= 1
    while end < len(line) and not line[end][0]:
        end += 1
    line[start:end] = [(" ", line[start][1])] * (end - start)


@lru_cache(maxsize=1)
def erases_in_colour() -> bool:
    """Say whether the terminal fills what it erases with the background at hand; its description knows."""
    try:
        curses.setupterm(os.environ.get("TERM", "dumb"), 1)
        return curses.tigetflag("bce") > 0 and curses.tigetstr("ech") == b"\x1b[%p1%dX"
    except curses.error:  # nothing is known of it
        return False


class TerminalPicture:
    """What the terminal is to show, and what has been written to it."""

    def __init__(self, *, erases: bool = False) -> None:
        self.size = Size(0, 0)
        self.erases = erases
        """Whether the terminal fills what it erases with the background at hand."""
        self._wanted: list[list[Cell]] = []
        self._written: list[list[Cell]] = []
        self._changed: set[int] = set()

    def take(self, update: LayoutUpdate | ChopsUpdate, colours: ColorSystem) -> None:
        """Take what is to be shown from now on."""
        if isinstance(update, LayoutUpdate):
            self._resize(update.region.size)
            for y, strips in enumerate(update.strips, update.region.y):
                self._put(y, update.region.x, strips, colours)
            return
        for y, start, end in update.spans:
            ends = update.chop_ends[y]
            for chop_end, (x, strip) in zip(ends, update.chops[y].items(), strict=False):
                if strip is not None and x <= end and chop_end > start:
                    self._put(y, x, (strip.crop(0, min(chop_end, end) - x),), colours)

    def _resize(self, size: Size) -> None:
        if size != self.size:
            self.size = size
            self._wanted = [[_UNKNOWN] * size.width for _ in range(size.height)]
            self.forget()

    def _put(self, y: int, x: int, strips: Iterable[Strip | None], colours: ColorSystem) -> None:
        if y >= len(self._wanted):
            return
        cells = [cell for strip in strips if strip is not None for cell in _cells(strip, colours)]
        cells = cells[: max(0, self.size.width - x)]
        line = self._wanted[y]
        end = x + len(cells)
        if line[x:end] != cells:
            _blank_halves(line, x)
            _blank_halves(line, end)
            line[x:end] = cells
            self._changed.add(y)

    def forget(self) -> None:
        """Take it that the terminal shows something else: all of it is written the next time."""
        self._written = [[_UNKNOWN] * self.size.width for _ in range(self.size.height)]
        self._changed = set(range(self.size.height))

    def changes(self) -> str:
        """Return what makes the terminal show what it is to show; from then on that counts as shown."""
        parts = [self._scroll()]
        pen = PLAIN
        for y in sorted(self._changed):
            wanted = self._wanted[y]
            at = -1
            for start, end in _runs(self._written[y], wanted):
                # Along a row it takes half of the bytes to go on from where the cursor stands, where that is known.
                parts.append(f"\x1b[{y + 1};{start + 1}H" if at < 0 else f"\x1b[{start - at}C")
                at = end if all(_EXACT(sign) for sign, _ in wanted[start:end]) else -1
                pen = _write(parts, wanted[start:end], pen, erases=self.erases)
            self._written[y] = wanted.copy()
        self._changed.clear()
        if pen != PLAIN:
            parts.append("\x1b[m")
        return "".join(parts)

    def _scroll(self) -> str:
        """Have the terminal move rows that have only moved, as those of a log do; return the sequence, or nothing."""
        rows = sorted(self._changed)
        if len(rows) <= SCROLL_SAVES_ROWS:
            return ""
        for y in (rows[len(rows) // 2], rows[len(rows) // 4], rows[len(rows) * 3 // 4]):
            if len(set(self._wanted[y][:-EDGE_CELLS])) > 1:  # one of blanks alone moved anywhere
                for distance in range(1, SCROLL_MOST_ROWS + 1):
                    for shift in (distance, -distance):
                        if self._has_moved(y, shift) and (sequence := self._scroll_around(y, shift)):
                            return sequence
        return ""

    def _has_moved(self, y: int, shift: int) -> bool:
        """Return whether a row is to show what is written so many rows below it, or above where that is negative."""
        source = y + shift
        if not (0 <= y < self.size.height and 0 <= source < self.size.height):
            return False
        return self._written[source][:-EDGE_CELLS] == self._wanted[y][:-EDGE_CELLS]

    def _scroll_around(self, y: int, shift: int) -> str:
        """Scroll the rows around one that have moved as it did, where that saves enough."""
        top = bottom = y
        while self._has_moved(top - 1, shift):
            top -= 1
        while self._has_moved(bottom + 1, shift):
            bottom += 1
        saved = sum(1 for row in range(top, bottom + 1) if not self._has_moved(row, 0))
        if saved < SCROLL_SAVES_ROWS + abs(shift):
            return ""
        blank = [[(" ", BLANK)] * self.size.width for _ in range(abs(shift))]
        # Lines are deleted and inserted between margins: the Linux console knows no other way to scroll.
        if shift > 0:
            bottom += shift
            act = f"{shift}M"
            self._written[top : bottom + 1] = [*self._written[top + shift : bottom + 1], *blank]
        else:
            top += shift
            act = f"{-shift}L"
            self._written[top : bottom + 1] = [*blank, *self._written[top : bottom + 1 + shift]]
        self._changed.update(range(top, bottom + 1))
        return f"\x1b[{top + 1};{bottom + 1}r\x1b[{top + 1}H\x1b[{act}\x1b[r"


def _runs(written: Sequence[Cell], wanted: Sequence[Cell]) -> list[tuple[int, int]]:
    """Return where two lines differ.

    A line on which terminals may disagree about widths is written whole: its rest may stand elsewhere than it seems.
    """
    differ = [x for x, (one, other) in enumerate(zip(written, wanted, strict=True)) if one != other]
    if not differ:
        return []
    if any(len(sign) != 1 for line in (written, wanted) for sign, _ in line):
        return [(0, len(wanted))]
    runs = []
    start = end = differ[0]
    for x in differ:
        if x - end > GAP_CELLS:
            runs.append((start, end))
            start = x
        end = x + 1
    return [*runs, (start, end)]


def _write(parts: list[str], cells: Sequence[Cell], pen: Pen, *, erases: bool) -> Pen:
    """Write cells with the pen at hand, and return the one that is at hand then."""
    for shown, group in groupby(cells, itemgetter(1)):
        blank = shown.is_blank and pen.is_plain
        wanted = pen._replace(background=shown.background) if blank else shown
        parts.append(_switch(pen, wanted))
        signs = [sign for sign, _ in group]
        if erases and shown.is_blank and len(signs) > ERASE_CELLS:
            parts.append(f"\x1b[{len(signs)}X\x1b[{len(signs)}C")
        else:
            parts += signs
        pen = wanted
    return pen


def _switch(pen: Pen, wanted: Pen) -> str:
    """Return the sequence that changes the pen: as little of it as differs."""
    if pen.attributes != wanted.attributes:
        codes = ["0", wanted.attributes, wanted.colour, wanted.background]
    else:
        codes = [
            (wanted.colour or "39") if wanted.colour != pen.colour else "",
            (wanted.background or "49") if wanted.background != pen.background else "",
        ]
    shown = ";".join(filter(None, codes))
    return f"\x1b[{shown}m" if shown else ""


ASK: Final = "\x1b[6n"
"""Asks for the position of the cursor."""
ASK_AFTER_BYTES: Final = 2048
"""Frames of so much in all are under way before one is asked about: at 20 kB/s they take a tenth of a second."""
ANSWER_SECONDS: Final = 3.0
"""How long an answer is waited for before it is taken to be lost."""
LAST_ANSWER_SECONDS: Final = 0.5
"""How long the end waits for an answer, which would else be typed into the shell."""


class DrawsFrames(Protocol):
    """The app, as the driver sees it."""

    def terminal_taken(self) -> None:
        """Know that the terminal shows nothing of what was drawn before."""

    def terminal_ready(self) -> None:
        """Draw what has changed: the terminal can take a frame."""


class CountedFile:
    """The terminal's file, which counts what it has taken; one that is gone takes everything."""

    def __init__(self, file: IO[str], taken: Callable[[int], None]) -> None:
        self.file = file
        self._taken = taken
        self._writes = 0

    def write(self, text: str) -> int:
        """Write a text."""
        self._writes += 1
        try:
            return self.file.write(text)
        except OSError:  # the terminal hung up; the signal that says so ends the app
            return len(text)

    def flush(self) -> None:
        """Hand over what was written, and say so once it is taken."""
        with contextlib.suppress(OSError):
            self.file.flush()
        self._taken(self._writes)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self.file.fileno()


class PacedDriver(LinuxDriver):
    """Textual's driver for terminals, with frames that wait until the terminal can take them."""

    def __init__(self, app: App[Any], **options: Any) -> None:  # Textual's own
        super().__init__(app, **options)
        self._frames = cast("DrawsFrames", app)
        self._file: Any = CountedFile(self._file, self._take)  # a file as far as the writer needs one
        self._written = 0
        self._taken = 0
        self._unasked_bytes = 0
        self._asked_at: float | None = None
        self._answers = False
        """Whether the terminal has answered: from then on it is waited for."""

    @property
    def ready(self) -> bool:
        """Whether the terminal has taken what was written, so that the next frame is seen soon."""
        if self._taken != self._written:
            return False
        asked_at = self._asked_at  # the thread that reads the answer clears it
        if asked_at is None or not self._answers:
            return True
        if time.monotonic() - asked_at < ANSWER_SECONDS:
            return False
        self._asked_at, self._answers = None, False
        return True

    def write(self, data: str) -> None:
        """Write to the terminal."""
        self._written += 1
        super().write(data)

    def write_frame(self, frame: str) -> None:
        """Write a part of what is drawn; ask whether it has arrived when much is under way."""
        self._unasked_bytes += len(frame)
        if self._unasked_bytes >= ASK_AFTER_BYTES and self._asked_at is None:
            self._unasked_bytes, self._asked_at = 0, time.monotonic()
            frame += ASK
            self._loop.call_later(ANSWER_SECONDS, self._announce)
        self.write(frame)

    def _take(self, writes: int) -> None:
        self._taken = writes
        self._announce_soon()

    def _announce_soon(self) -> None:
        with contextlib.suppress(RuntimeError):  # the app has ended
            self._loop.call_soon_threadsafe(self._announce)

    def _announce(self) -> None:
        if self.ready:
            self._frames.terminal_ready()

    def process_message(self, message: Message) -> None:
        """Take the answer of the terminal; everything else is for the app."""
        if isinstance(message, events.CursorPosition):
            self._asked_at, self._answers = None, True
            self._announce_soon()
        else:
            super().process_message(message)

    def start_application_mode(self) -> None:
        """Take the terminal, which shows nothing of ours yet."""
        self._written = self._taken = 0
        self._file = CountedFile(self._file.file, self._take)
        self._frames.terminal_taken()
        super().start_application_mode()  # type: ignore[no-untyped-call] # Textual does not type it
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._loop.add_signal_handler(number, self._end, number)

    def _end(self, number: signal.Signals) -> None:
        """End the app as its user would; a second signal ends it at once."""
        for each in (signal.SIGTERM, signal.SIGHUP):
            self._loop.remove_signal_handler(each)
        self._app.exit(128 + number, return_code=128 + number)

    def stop_application_mode(self) -> None:
        """Leave the terminal as it was; wait for an answer under way, which the shell would take as typed."""
        deadline = time.monotonic() + LAST_ANSWER_SECONDS
        while self._answers and self._asked_at is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        self._asked_at = None
        super().stop_application_mode()


SYNC_START, SYNC_END = "\x1b[?2026h", "\x1b[?2026l"
"""What stands between them is shown at once."""


TYPED_SECONDS: Final = 2.0
"""A key that was not dealt with by then no longer holds up the next one."""
LOOK_SECONDS: Final = 0.1
"""How often it is looked whether who had the key is still there: a widget that is removed passes nothing on."""


class KeyTaken(Message):
    """Follows a key through the widgets: where it arrives, the key was dealt with."""

    def __init__(self, number: int, *, again: bool = False) -> None:
        super().__init__()
        self.number = number
        self.again = again
        """Whether it went the way once before: what the key's widget had sent meanwhile is before it now."""


class TerminalApp(App[int]):
    """Draws by difference: what Textual draws is taken into a picture, and what differs there is written.

    Keys are dealt with one after the other. Textual gives each key that arrives to the widget that has the focus then;
    what is typed or pasted behind a key that opens a line would go where the key went.
    """

    def __init__(self, **options: Any) -> None:  # Textual's own
        super().__init__(**options)
        self._picture = TerminalPicture(erases=erases_in_colour())
        self._cursor_written: Offset | None = None
        self._typed: deque[events.Key | events.Paste] = deque()
        self._key_number = 0
        self._key_under_way = False
        self._key_target: Widget | Screen[Any] | None = None

    async def on_event(self, event: events.Event) -> None:
        """Take an event; a key waits until the one before it was dealt with."""
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await super().on_event(event)
            return
        self._typed.append(event)
        if not self._key_under_way:
            await self._next_key()

    async def _next_key(self) -> None:
        """Give the next key to the widget that has the focus now."""
        self._key_under_way = bool(self._typed)
        if not self._typed:
            return
        event, number = self._typed.popleft(), self._key_number + 1
        self._key_number = number
        target = self._key_target = self.focused or self.screen
        self.set_timer(LOOK_SECONDS, partial(self._await_key, number, target, TYPED_SECONDS))
        await super().on_event(event)
        if not target.post_message(KeyTaken(number)):
            await self._next_key()

    async def _await_key(self, number: int, target: Widget | Screen[Any], seconds: float) -> None:
        """Deal with the next key where nobody deals with this one any more, or not for so long."""
        if not self._key_under_way or number != self._key_number:
            return
        if target.is_attached and seconds > 0:
            self.set_timer(LOOK_SECONDS, partial(self._await_key, number, target, seconds - LOOK_SECONDS))
        else:
            await self._key_taken(number)

    async def on_key_taken(self, taken: KeyTaken) -> None:
        """Deal with the next key, once what this one has led to is dealt with, too."""
        target = self._key_target
        if taken.again or target is None or not target.post_message(KeyTaken(taken.number, again=True)):
            await self._key_taken(taken.number)

    async def _key_taken(self, number: int) -> None:
        if self._key_under_way and number == self._key_number:
            await self._next_key()

    def get_driver_class(self) -> type[Driver]:
        """Return the driver that waits for the terminal; in a browser or a test, the one that is asked for."""
        found = super().get_driver_class()
        return PacedDriver if issubclass(PacedDriver, found) else found

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        """Take what was drawn; Textual 8.2.8 writes it here, whether or not it differs from what is shown."""
        if not isinstance(renderable, LayoutUpdate | ChopsUpdate) or self._batch_count:
            super()._display(screen, renderable)
            return
        if self._draws:
            if isinstance(renderable, ChopsUpdate) and screen.size != self._picture.size:
                renderable = screen._compositor.render_full_update()
            self._picture.take(renderable, self._colours)
            self.terminal_ready()
        self.post_display_hook()

    @property
    def _draws(self) -> bool:
        return self._running and not self._closed and not self.is_headless and self._driver is not None

    @property
    def _colours(self) -> ColorSystem:
        return self.console._color_system or ColorSystem.TRUECOLOR

    def terminal_taken(self) -> None:
        """Know that the terminal shows nothing of what was drawn before."""
        self._picture.forget()
        self._cursor_written = None

    def action_app_redraw(self) -> None:
        """Write all of the screen again: another program may have written over it."""
        self.terminal_taken()
        self.terminal_ready()

    def terminal_ready(self) -> None:
        """Write what differs from what the terminal shows, if it can take that now."""
        driver = self._driver
        if driver is None or not self._draws or (isinstance(driver, PacedDriver) and not driver.ready):
            return
        changes = self._picture.changes()
        cursor = self.screen.outer_size.clamp_offset(self.cursor_position)
        if not changes and cursor == self._cursor_written:
            return
        self._cursor_written = cursor
        frame = f"{changes}\x1b[{cursor.y + 1};{cursor.x + 1}H"
        if self._sync_available:
            frame = f"{SYNC_START}{frame}{SYNC_END}"
        if isinstance(driver, PacedDriver):
            driver.write_frame(frame)
        else:
            driver.write(frame)


def print_last(text: str) -> None:
    """Print what is to stand on the terminal when the app has left it, if it is still there."""
    with contextlib.suppress(OSError):
        print(text, end="", file=sys.stderr, flush=True)
