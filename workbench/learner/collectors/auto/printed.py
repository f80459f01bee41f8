"""Recognises the lines that come again with other numbers, and gives their points.

The points depend on the lines alone: who reads the same output again gets the same ones at the same lines.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Pattern, Sequence, Set, Tuple

from workbench.learner.collectors.auto.line_values import (
    LINE_CHARACTERS,
    LineValues,
    ParsedNumber,
    cleaned,
    line_values,
    parse,
    values_of_pairs,
)
from workbench.learner.collectors.auto.names import EPOCH, METRIC, SKIPPED, STEP, has_phase, kind_of, phase_in
from workbench.learner.collectors.batches import Batches, note
from workbench.learner.collectors.blocks import BLOCK_POINTS
from workbench.learner.collectors.interface import Record
from workbench.learner.collectors.streams import LineStream
from workbench.learner.collectors.values import Number, number
from workbench.learner.texts import expression

TIMES = 3
"""How often a shape of lines comes, with other numbers, before it is recognised."""

HELD = 8
"""Lines of one shape that are kept until then."""
CANDIDATES = 300
"""Shapes that are waited for at once."""
NAMES = 500
"""Series of one learner at most."""
EMPTY = 256
"""Shapes of lines without values that are kept: lines that differ from them in their digits alone are not read."""
EMPTY_CHARACTERS = 400
NOTES = 8
MARKS = 32
"""Texts at most by which lines are found among others that give nothing."""
SUMMARY = "summary"
ROWS = 100
ROW_CHARACTERS = 300

_HAS_NUMBER = expression(r"\d|\bnan\b|\binf\b", re.IGNORECASE)
_HEADER_WORDS = (
    "loss", "acc", "score", "error", "rmse", "mae", "f1", "auc", "map50", "precision", "learn", "reward", "grad",
)  # fmt: skip
_GAPS = expression(r"[ ]{2,}|[ ]*\t[ ]*")
_BAR_BEHIND = expression(r":[ \t]{0,20}(\d{1,3})%\|")
_THICK_BEHIND = expression(r":[ \t]{0,20}(\d{1,3})%[ \t][━╸╺─]")
_CELL = expression(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?%?|[-+]?(?:nan|inf)", re.IGNORECASE)
_PAIR = (
    r"(?<![\w/.-])[\"']?(%s)[\"']?[ \t]{0,4}[=:][ \t]{0,4}[\"']?"
    r"([-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|nan|[-+]?inf)(?!\w|\.\d)"
)
"""A name that is expected, and its number."""
_REMARKS = ("Notes", "Note", "Comment", "Remarks")
"""Columns at the end that most rows leave empty."""
_EMPTY_CELL = expression(
    r"(?:\d{1,9}:)?\d{1,9}:\d{1,9}(?:\.\d+)?|\d+(?:\.\d+)?[a-zA-Z]{1,3}|-+|None|n/?a|\d+/\d+", re.IGNORECASE
)
_INDENTED = expression(r" {2,12}([A-Za-z_][\w/.-]{0,60}):[ ]{1,4}(\S{1,40})[ ]*")
_RATIO = expression(r"(\d+)/\d+")
_WORDS = expression(r"[A-Za-z0-9]+")
_NO_DIGITS = str.maketrans("", "", "0123456789")

Key = Tuple[str, Tuple[str, ...]]


class PrintedPoint(NamedTuple):
    """What one line gives: numbers that share a step."""

    group: str
    values: Dict[str, float]
    step: Optional[ParsedNumber]
    epoch: Optional[ParsedNumber]
    time_us: int


class _Columns(NamedTuple):
    names: Tuple[str, ...]
    separator: str


class _Candidate:
    """A shape that did not come often enough."""

    __slots__ = ("count", "held", "numbers")

    def __init__(self) -> None:
        self.count = 0
        self.held: List[PrintedPoint] = []
        self.numbers: List[Tuple[object, ...]] = []


class LineShapes:
    """What is known of the lines of one learner so far.

    Args:
        expected: names of metrics, whole or their last parts, whose lines are recognised when the first one comes.
    """

    def __init__(self, expected: Sequence[str] = ()) -> None:
        self._expected = tuple(expected)
        self._pairs = re.compile(_PAIR % "|".join(map(re.escape, expected))) if expected else None
        self.notes: List[str] = []
        """What was recognised and is to be told."""
        self._noted = 0
        self._candidates: Dict[Key, _Candidate] = {}
        self._known: Dict[Key, Tuple[object, ...]] = {}
        """Each recognised shape, with the numbers of its last line."""
        self._names: Dict[Tuple[str, str], None] = {}
        self._empty: Dict[str, int] = {}
        """How often a text, its digits aside, held no values."""
        self._unread: Dict[str, Tuple[str, int]] = {}
        """The last line of each of those that count steps, with its time: it is read once its count is needed."""
        self._counting: Set[str] = set()
        self._marks = {b"poch"}
        self._columns: Optional[_Columns] = None
        self._has_rows = False
        self._whole: Optional[Tuple[LineValues, PrintedPoint, str]] = None
        """The last state of a bar, until it is known that it is not printed once more."""
        self._block: List[Tuple[str, float]] = []
        self._section = ""
        self._row_text = ""
        self._row_time_us = 0
        self._stepped: Dict[str, None] = {}
        """Names that stand in lines with a step."""
        self._epoch: Optional[ParsedNumber] = None
        self._step: Optional[ParsedNumber] = None

    @property
    def series(self) -> int:
        """How many series are recognised."""
        return len(self._names)

    @property
    def has_columns(self) -> bool:
        """Whether rows below a header were recognised: they hold no names."""
        return self._has_rows

    @property
    def columns(self) -> Tuple[Tuple[str, ...], str]:
        """The names of the last header, and what separates its columns."""
        return ((), " ") if self._columns is None else (self._columns.names, self._columns.separator)

    def marks(self) -> Tuple[bytes, ...]:
        """Return texts of which each line holds one that gives points of a recognised series, or names an epoch."""
        return tuple(sorted(self._marks))

    def is_row(self, text: str) -> bool:
        """Say whether a line is a row below the last header."""
        return self._columns is not None and self._row(cleaned(text)) is not None

    def take(self, text: str, time_us: int) -> List[PrintedPoint]:
        """Take the next line; return the points that are certain now, those of earlier lines first."""
        text = cleaned(text)
        points: List[PrintedPoint] = []
        row = self._block_row(text)
        if row is None:
            points = self._block_points()
            self._section = ""
            return points + self._take_line(text, time_us)
        name, value = row
        if any(name == known for known, _ in self._block):
            points = self._block_points()
        if value is not None and len(self._block) < ROWS:
            self._block.append((name, value))
            self._row_text, self._row_time_us = text, time_us
        return points

    def _block_points(self) -> List[PrintedPoint]:
        """Return the points of the rows that belong together and have ended."""
        block, self._block = self._block, []
        found = values_of_pairs(block) if block else None
        if found is None or not found.values:
            return []
        return self._recognised(found, self._point(found, self._row_time_us), self._row_text)

    def _block_row(self, text: str) -> Optional[Tuple[str, Optional[float]]]:
        """Return what a row of a table, or of a block of YAML, names: such rows belong together.

        The value is None where it is not a number; None for other lines.
        """
        if len(text) > ROW_CHARACTERS:
            return None
        if text[:2] == "  ":
            row = _INDENTED.fullmatch(text)
            return None if row is None else (row.group(1), _cell_value(row.group(2)))
        if text[:1] not in "|│":
            return None
        cells = [cell.strip() for cell in text.strip(" |│").replace("│", "|").split("|")]
        if len(cells) == 1 and cells[0].endswith("/"):
            self._section = cells[0]
            return cells[0], None
        if len(cells) != 2 or not _CELL.fullmatch(cells[1]) or not cells[0][:1].isalpha():
            return None
        return self._section + cells[0], _cell_value(cells[1])

    def _take_line(self, text: str, time_us: int) -> List[PrintedPoint]:
        whole, self._whole = self._whole, None
        points = self._take(text, time_us)
        if whole is not None and not (self._whole and set(whole[0].names) <= set(self._whole[0].names)):
            points = self._recognised(*whole) + points
        return points

    def _take(self, text: str, time_us: int) -> List[PrintedPoint]:
        found = self._row(text) if self._columns is not None else None
        if found is None:
            if not _HAS_NUMBER.search(text):
                self._look_for_header(text)
                return []
            found = self._with_expected(text, self._line_values(text, time_us))
            if found is None or not found.values:
                self._look_for_header(text)
        elif found.values:
            self._has_rows = True
        if found is None or found.is_partial:
            return []
        found = self.apart(found)
        point = self._point(found, time_us)
        if found.is_whole and found.values:
            self._whole = found, point, text
            return []
        return self._recognised(found, point, text) if found.values else []

    def _line_values(self, text: str, time_us: int) -> Optional[LineValues]:
        """Read a line, unless lines that differ from it in their digits alone held no values again and again."""
        shape = text.translate(_NO_DIGITS) if len(text) <= EMPTY_CHARACTERS else ""
        if self._empty.get(shape, 0) >= TIMES:
            if shape in self._counting:
                self._unread.pop(shape, None)  # the last one is to come last
                self._unread[shape] = (text, time_us)
            return None
        found = line_values(text)
        if shape and (found is None or not found.values):
            if len(self._empty) >= EMPTY:
                self._empty.clear()
                self._counting.clear()
            self._empty[shape] = self._empty.get(shape, 0) + 1
            if found is not None:
                self._counting.add(shape)
        return found

    def _with_expected(self, text: str, found: Optional[LineValues]) -> Optional[LineValues]:
        """Read numbers of expected names that are otherwise not found in a line, or under a longer name."""
        if self._pairs is None or (found is not None and self._is_expected(found.group, found.names)):
            return found
        values = tuple((name, float(cell)) for name, cell in dict(self._pairs.findall(text)).items())
        if not values:
            return found
        return (
            found._replace(values=values)
            if found
            else LineValues("", values, None, None, "", None, False, False)
        )

    def _read_unread(self) -> None:
        """Take the counts of lines that were passed over, as if they had been read when they came."""
        unread, self._unread = self._unread, {}
        for text, time_us in unread.values():
            found = line_values(text)
            if found is not None and not found.is_partial:
                self._point(found, time_us)

    def apart(self, found: LineValues) -> LineValues:
        """Keep a line that sums up apart from those of each step, of which it repeats the names."""
        if found.group or found.is_whole or found.is_bar:
            return found
        if found.step is not None:
            self._stepped.update(dict.fromkeys(found.names[: NAMES - len(self._stepped)]))
        elif any(name in self._stepped for name in found.names):
            return found._replace(group=SUMMARY)
        return found

    def finish(self) -> List[PrintedPoint]:
        """Return the points of lines that came too seldom, but whose names are known."""
        points = self._block_points()
        whole, self._whole = self._whole, None
        points += [] if whole is None else self._recognised(*whole)
        for (group, names), candidate in self._candidates.items():
            if all((group, name) in self._names for name in names):
                points += candidate.held
        self._candidates = {}
        return points

    def _point(self, found: LineValues, time_us: int) -> PrintedPoint:
        """Complete a line's values by the epoch or step that lines before it named."""
        if self._unread:
            self._read_unread()
        epoch = self._epoch if found.epoch is None else found.epoch
        step = found.step if found.step is not None else epoch
        if step is None:
            step = self._step
        if not found.is_bar or found.values:
            self._epoch = epoch
            if found.step is not None and not found.is_bar:
                self._step = found.step
        return PrintedPoint(found.group, dict(found.values), step, epoch, time_us)

    def _recognised(self, found: LineValues, point: PrintedPoint, text: str) -> List[PrintedPoint]:
        key = (found.group, found.names)
        numbers: Tuple[object, ...] = (*point.values.values(), point.step, point.epoch)
        if key in self._known:
            is_again = found.is_bar and self._known[key] == numbers
            self._known[key] = numbers
            return [] if is_again else [point]
        candidate = self._candidates.get(key)
        if candidate is None:
            if len(self._candidates) >= CANDIDATES:
                del self._candidates[next(iter(self._candidates))]
            candidate = self._candidates[key] = _Candidate()
        if found.is_bar and candidate.numbers[-1:] == [numbers]:
            return []
        candidate.count += 1
        candidate.held.append(point)
        candidate.numbers.append(numbers)
        if not self._is_certain(key, candidate):
            del candidate.held[:-HELD], candidate.numbers[:-HELD]
            return []
        return self._take_up(key, text)

    def _is_certain(self, key: Key, candidate: _Candidate) -> bool:
        group, names = key
        if all((group, name) in self._names for name in names) or self._is_expected(group, names):
            return True
        return candidate.count >= TIMES and len(set(candidate.numbers)) > 1

    def _is_expected(self, group: str, names: Sequence[str]) -> bool:
        whole = (
            ["/%s/%s" % (group, name) if group else "/" + name for name in names] if self._expected else ()
        )
        return any(name.endswith("/" + expected) for name in whole for expected in self._expected)

    def _take_up(self, key: Key, text: str) -> List[PrintedPoint]:
        group, names = key
        new = [name for name in names if (group, name) not in self._names]
        if len(self._names) + len(new) > NAMES:
            return []
        candidate = self._candidates.pop(key)
        self._known[key] = candidate.numbers[-1]
        self._names.update(dict.fromkeys((group, name) for name in names))
        self._mark(names, text)
        if new and self._noted < NOTES:
            self._noted += 1
            self.notes.append(_note(group, new, candidate.held[-1], text))
        return candidate.held

    def _mark(self, names: Tuple[str, ...], text: str) -> None:
        """Add what lines of a recognised shape hold: the longest word of its names, or the bar of a table."""
        if text[:1] in ("|", "│"):
            self._marks.add(text[:1].encode())
            return
        if self._step is not None:
            self._marks |= {b"tep", b"terat"}
        words = [word for name in names for word in _WORDS.findall(name) if word in text]
        if words and len(self._marks) < MARKS:
            self._marks.add(max(words, key=len).encode())

    def _look_for_header(self, text: str) -> None:
        if len(text) > 400:
            return
        lowered = text.lower()
        if not any(word in lowered for word in _HEADER_WORDS):
            return
        columns = _header(text)
        if columns is not None:
            self._columns = columns

    def _row(self, text: str) -> Optional[LineValues]:
        assert self._columns is not None, "it is asked where there is a header"
        names, separator = self._columns
        if len(text) > 1000:
            return None
        behind = _BAR_BEHIND.search(text) or _THICK_BEHIND.search(text)
        cells = _cells(text[: behind.start()] if behind else text, separator)
        if len(cells) == len(names) - 1 and names[-1] in _REMARKS:
            cells = [*cells, "-"]
        if len(cells) != len(names):
            return None
        return _row_values(
            names,
            cells,
            has_texts=separator == "|",
            is_partial=behind is not None and behind.group(1) != "100",
        )


def _cell_value(cell: str) -> Optional[float]:
    return parse(cell.rstrip("%")) if _CELL.fullmatch(cell) else None


def _cells(text: str, separator: str) -> List[str]:
    if separator == " ":
        return text.split()
    return [
        cell.strip() for cell in text.strip(" |│┃\t").replace("│", "|").replace("┃", "|").split(separator)
    ]


def _header(text: str) -> Optional[_Columns]:
    """Return the columns that a line names; None where it is not a header."""
    text = text.rstrip()
    behind = _BAR_BEHIND.search(text) or _THICK_BEHIND.search(text)
    if behind is not None:
        text = text[: behind.start()]
    if "|" in text.strip()[1:-1].replace("||", "") or "│" in text or "┃" in text:
        names, separator = _cells(text, "|"), "|"
    elif "," in text:
        names, separator = _cells(text, ","), ","
    else:
        names, separator = _GAPS.split(text.strip()), " "
        if len(names) < 2:
            names = text.split()
            if kind_of(names[0]) not in (EPOCH, STEP):
                return None
    names = [
        "epoch"
        if name == "E"
        else "step"
        if name == "#"
        else "_".join(_unbracketed(name.strip("# ")).split())
        for name in names
    ]
    kinds = [kind_of(name) for name in names]
    if not 2 <= len(names) <= 40 or METRIC not in kinds or any(not _is_title(name) for name in names):
        return None
    return _Columns(tuple(names), separator)


def _unbracketed(name: str) -> str:
    """Return a name without a bracket that opens or ends at another column: ``Box(P``, ``R``, ``mAP50)``."""
    if ")" not in name:
        return name.rpartition("(")[2]
    return name if "(" in name else name.rstrip(")")


def _is_title(name: str) -> bool:
    return 0 < len(name) <= 40 and name.strip("|")[:1].isalpha() and not any(c in name for c in "=:{}'\"")


def _row_values(
    names: Tuple[str, ...], cells: List[str], *, has_texts: bool, is_partial: bool
) -> Optional[LineValues]:
    """Return what a row holds; None where it is none. Only between bars may a cell be a text (``has_texts``)."""
    values: Dict[str, float] = {}
    epoch: Optional[ParsedNumber] = None
    step: Optional[ParsedNumber] = None
    step_name, label = "", ""
    for index, (name, cell) in enumerate(zip(names, cells)):  # noqa: B905 - Python 3.8; as long as each other
        kind = kind_of(name)
        ratio = _RATIO.fullmatch(cell)
        value = (
            parse(ratio.group(1) if ratio else cell.rstrip("%")) if ratio or _CELL.fullmatch(cell) else None
        )
        if value is None:
            if index == 0 and cell.replace("_", "").replace("-", "").isalnum():
                label = cell
            elif not has_texts and not _EMPTY_CELL.fullmatch(cell):
                return None
        elif kind == EPOCH:
            epoch = value
        elif kind == STEP:
            step, step_name = value, name
        elif kind != SKIPPED:
            values[name] = value
    if not any(kind_of(name) == METRIC for name in values):
        return None
    group = "" if label in ("", "all") or any(map(has_phase, names)) else phase_in(label) or label
    return LineValues(group, tuple(values.items()), epoch, step, step_name, None, False, is_partial)


def _note(group: str, names: List[str], point: PrintedPoint, text: str) -> str:
    shown = ", ".join("%s/%s" % (group, name) if group else name for name in names[:6])
    more = ", ..." if len(names) > 6 else ""
    by = "" if point.step is None else " by epoch" if point.step == point.epoch else " by step"
    line = " ".join(text.split())
    return "metrics: %s%s%s, from lines like: %s" % (
        shown,
        more,
        by,
        line if len(line) <= 100 else line[:99] + "…",
    )


def _any_of(texts: Sequence[bytes]) -> Pattern[bytes]:
    return re.compile(b"|".join(map(re.escape, texts)))


def _decoded(line: bytes) -> str:
    return line[:LINE_BYTES].decode("utf-8", "replace")


_OUTPUT = ""

LOOKS = 200
"""So many lines that give nothing are read in a row, whatever they hold; time and points allow more."""
USUAL_LOOKS = 1000
"""The same of lines with a known or usual word."""
LOOKS_A_SECOND = 50
LOOKS_A_POINT = 50
WAKING_LOOKS = 20
"""With so many allowed again any line is read, until none is: cutting output into lines costs, too."""
SEARCHED_BYTES = 2 << 20
"""In so many bytes known and usual words are searched for while no line is read; time allows more."""
SEARCHED_BYTES_A_SECOND = 1 << 20
LINE_BYTES = 2 * LINE_CHARACTERS
USUAL_WORDS = (b"oss", b"ccuracy", b"poch", b"rmse", b"eward", b"score")
"""Lines that hold one of these may give a first point where other lines gave none for long."""


class _Allowance:
    """What may be spent on output that gives nothing; it grows with the time of the output, up to a limit."""

    __slots__ = ("_a_second", "_limit", "_time_us", "left")

    def __init__(self, limit: float, a_second: float) -> None:
        self.left = self._limit = limit
        self._a_second = a_second
        self._time_us: Optional[int] = None

    def grow(self, time_us: int) -> None:
        """Add what the time since the output before allows."""
        if self._time_us is not None and time_us > self._time_us:
            self.add((time_us - self._time_us) * self._a_second / 1e6)
        self._time_us = time_us

    def add(self, amount: float) -> None:
        self.left = min(self._limit, self.left + amount)

    def take(self, amount: float) -> bool:
        """Spend an amount where there is any left; return whether there was."""
        if self.left <= 0:
            return False
        self.left -= amount
        return True


class _PrintedStream(LineStream):
    """The output. It is read from its beginning whatever was written, since a shape is known by all lines before.

    Where nothing comes for long, only some lines are read. Which ones depends on the lines and on when they were
    printed, both of which the journal keeps: who reads it again reads the same ones.
    """

    def __init__(self, written: int, until: Optional[int], expected: Sequence[str]) -> None:
        super().__init__(0, until)
        self._written = written
        """Before this byte all is written."""
        self._shapes = LineShapes(expected)
        self._series = 0
        self._rests = False
        self._looks = _Allowance(LOOKS, LOOKS_A_SECOND)
        self._usual_looks = _Allowance(USUAL_LOOKS, LOOKS_A_SECOND)
        self._searched = _Allowance(SEARCHED_BYTES, SEARCHED_BYTES_A_SECOND)
        self._marks: Tuple[bytes, ...] = ()
        self._usual = (
            *USUAL_WORDS,
            *(name.rpartition("/")[2].encode("utf-8", "replace") for name in expected),
        )
        self._known: Optional[Pattern[bytes]] = None
        """Finds marks and usual words, once a line is searched for them."""

    def pass_over(self, end_offset: int, time_us: int) -> bool:
        """Pass over the bytes up to an offset where nothing would be searched for in them; return whether it did."""
        if not self._is_resting(time_us) or self._marks or self._searched.left > 0:
            return False
        self._cutter.pass_over()
        self.read_offset = end_offset
        return True

    def _is_resting(self, time_us: int) -> bool:
        for allowance in (self._looks, self._usual_looks, self._searched):
            allowance.grow(time_us)
        self._rests = self._rests and self._looks.left < WAKING_LOOKS
        return self._rests

    def feed(self, data: bytes, end_offset: int, time_us: int) -> None:
        """Cut the bytes into lines and read them; while nothing comes, only lines with known or usual words."""
        if not self._is_resting(time_us):
            super().feed(data, end_offset, time_us)
            return
        is_searched = self._searched.take(len(data))
        if is_searched and self._shapes.has_columns:
            super().feed(data, end_offset, time_us)
            return
        marks = self._marks + (self._usual if is_searched else ())
        if marks:
            self._read_marked(data, end_offset, time_us, marks)
        self._cutter.skip(data, end_offset)
        self.read_offset = end_offset

    def _read_marked(self, data: bytes, end_offset: int, time_us: int, marks: Sequence[bytes]) -> None:
        """Read the whole lines that hold one of some texts, without cutting the others out."""
        text = self._cutter.held + data
        found: Dict[int, int] = {}
        for mark in marks:
            at = text.find(mark)
            while at >= 0:
                begin = text.rfind(b"\n", 0, at) + 1
                begin = max(begin, text.rfind(b"\r", begin, at) + 1)
                end = text.find(b"\n", at)
                end = text.find(b"\r", at, None if end < 0 else end) if b"\r" in text[at:end] else end
                if end < 0:
                    break
                found[begin] = end
                at = text.find(mark, end)
        base = end_offset - len(text)
        for begin in sorted(found):
            # Of a line that is too long only the beginning is held: what follows it does not say where it began.
            self._read(text[begin : found[begin]], base + begin if begin else self._cutter.offset, time_us)

    def line(self, text: bytes, begin: int, time_us: int) -> None:
        """Take one line."""
        if self._rests and not self._is_known(text) and not self._is_row(text):
            return
        self._read(text, begin, time_us)

    def _is_known(self, text: bytes) -> bool:
        if self._known is None:
            self._known = _any_of((*self._marks, *self._usual))
        return self._known.search(text) is not None

    def _is_row(self, text: bytes) -> bool:
        return self._shapes.has_columns and self._shapes.is_row(_decoded(text))

    def _read(self, text: bytes, begin: int, time_us: int) -> None:
        """Read one line, unless too many like it gave nothing."""
        if not self._usual_looks.take(1):
            return
        points = self._shapes.take(_decoded(text), time_us)
        self._add(points, begin)
        if self._shapes.series > self._series:
            self._series = self._shapes.series
            self._marks = self._shapes.marks()
            self._known = None
            self._looks.add(LOOKS)
            self._usual_looks.add(USUAL_LOOKS)
            self._rests = False
        elif points:
            self._looks.add(LOOKS_A_POINT)
            self._usual_looks.add(LOOKS_A_POINT)
        else:
            self._looks.take(1)
            self._rests = self._rests or self._looks.left <= 0
        if self._shapes.notes:
            for each in self._shapes.notes:
                if begin >= self._written:
                    self.add_record(note(each, time_us, level="info"), begin)
            self._shapes.notes = []

    def finish(self, time_us: int) -> None:
        """Take the last line, and what waited for more of its kind."""
        super().finish(time_us)
        self._add(self._shapes.finish(), self._cutter.offset)

    def _add(self, points: List[PrintedPoint], begin: int) -> None:
        if begin < self._written:
            return
        for each in points:
            etimes: dict[str, Number] = {} if each.epoch is None else {"epoch": number(each.epoch)}
            values: dict[str, Number] = {name: number(value) for name, value in each.values.items()}
            self.blocks_at(begin).add(
                each.group,
                "",
                step=each.step,
                time_us=each.time_us,
                values=values,
                etimes=etimes,
                texts={},
            )


class PrintedNumbers:
    """Reads a learner's output for the collector ``auto``."""

    def __init__(self, source: str, expected: Sequence[str] = ()) -> None:
        self._batches = Batches(source)
        self._expected = expected
        self._stream = _PrintedStream(0, None, expected)

    @property
    def waiting(self) -> bool:
        """Whether points wait for the next poll."""
        return self._stream.points > 0

    def restore(self, cursor: Any) -> None:
        """Go on behind the record that has this cursor."""
        self._batches.restore(cursor)
        until = self._batches.until
        written = int(self._batches.begin.get(_OUTPUT, 0))
        ends = None if until is None else int(until.get(_OUTPUT, written))
        self._stream = _PrintedStream(written, ends, self._expected)

    def cursor(self) -> Any:
        """Say where to go on; points that wait are read again."""
        behind = self._stream.position < int(self._batches.begin.get(_OUTPUT, 0))
        is_kept = self.waiting or behind or self._batches.until is not None
        return self._batches.cursor(self._batches.begin if is_kept else {_OUTPUT: self._stream.position})

    def output(self, data: bytes, end_offset: int, time_us: int) -> None:
        """Take output, from its beginning on."""
        self._stream.feed(data, end_offset, time_us)

    def pass_over(self, end_offset: int, time_us: int) -> bool:
        """Leave output up to an offset unread where nothing is looked for; return whether it did."""
        return self._stream.pass_over(end_offset, time_us)

    def poll(self, now_us: int) -> None:
        """Close the batch if it is time."""
        until = self._batches.until
        if until is not None:
            if self._stream.position < int(until.get(_OUTPUT, 0)):
                return
            self._close(now_us)
        if self._stream.points >= BLOCK_POINTS or (self.waiting and self._batches.due(now_us)):
            self._close(now_us)

    def finish(self, now_us: int) -> None:
        """Take what needs no more lines."""
        self._stream.finish(now_us)
        while self._batches.until is not None or self.waiting:
            self._close(now_us)

    def take(self) -> List[Record]:
        """Return the records that are finished, each with its cursor."""
        return self._batches.take()

    def _close(self, now_us: int) -> None:
        until = self._batches.until
        position = {_OUTPUT: self._stream.position} if until is None else {**self._batches.begin, **until}
        self._batches.close(self._stream.drain(), position, now_us)
