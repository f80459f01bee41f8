"""FfDL's ``emetrics_file``: points that training code itself writes into ``evaluation-metrics.txt``.

A line: ``{"meta": {"time"?, "subid"?, ...}, "grouplabel": "train", "etimes": {"iteration": {"type": "INT",
"value": 1}}, "values": {"loss": {"type": 3, "value": "0.5"}}}``; types by name or numbered from 0 as in
FfDL, or none.

What is wrong in a line costs itself alone: a value, a step or a time that is none, half a line before a whole one.
Where it is not known to which series the values belong, they are left out. One note counts the lines in which
something was wrong.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from workbench.learner.collectors.batches import counted_note
from workbench.learner.collectors.sources import path_of, walk
from workbench.learner.collectors.streams import LineStream, Stream, StreamCollector, StreamSource
from workbench.learner.collectors.values import number, parse_time, step_of, typed
from workbench.learner.texts import expression

FILE_NAME = "evaluation-metrics.txt"

LINE_BYTES = 1 << 20
"""Bytes of a line at most; what is longer is left out."""

_PIECES = 20
"""How many beginnings of an object are tried in a line."""

_BEGINNING = expression(r'\{\s*"(?:meta|grouplabel|etimes|values)"\s*:')
_BLANKS = expression(r"[\s\0]*")
_MARK = b"\xef\xbb\xbf"
"""The byte order mark, with which some programs begin a file."""


class EmetricsCollector(StreamCollector):
    """Reads ``evaluation-metrics.txt`` in LOG_DIR and the folders right below it, whose names are subids."""

    name = "emetrics_file"

    def find(self) -> Iterator[StreamSource]:
        """Name the files there are now; ``in:`` may name another folder or the file itself."""
        if not self.may_read_files():
            return
        folder = path_of(str(self.metrics.get("source") or ""), self.context)
        for path, name, below in walk(folder, self.context, FILE_NAME.__eq__, depth=1, watch=self.watch):
            yield StreamSource(path, name, subid=below)

    def open_stream(self, source: Optional[StreamSource], offset: int, until: Optional[int]) -> Stream:
        """Begin to read a file."""
        assert source is not None, "it does not want the output"
        return _EmetricsStream(source, offset, until)


class _EmetricsStream(LineStream):
    """One file of evaluation metrics."""

    def __init__(self, source: StreamSource, offset: int, until: Optional[int]) -> None:
        super().__init__(offset, until, LINE_BYTES + 1)
        self._source = source
        self._wrong: List[str] = []
        """What is wrong in the line that is being read."""
        self._decoder = json.JSONDecoder(object_pairs_hook=self._merged, parse_int=_integer)

    def line(self, text: bytes, begin: int, time_us: int) -> None:
        """Take the points of a line; one in which something is wrong is counted."""
        self._wrong = []
        if len(text) > LINE_BYTES:
            self._wrong.append("longer than %d bytes" % LINE_BYTES)
        else:
            text = text[len(_MARK) :] if text.startswith(_MARK) else text
            for document in self._objects(text.decode("utf-8", "surrogateescape")):
                self._take(document, begin, time_us)
        if self._wrong:
            self._count(begin, time_us)

    def _objects(self, text: str) -> List[Dict[str, Any]]:
        """Return the objects in a line: behind half a line that a killed program left, a whole one may stand."""
        found: List[Dict[str, Any]] = []
        at, pieces = _end_of_blanks(text, 0), 0
        while at < len(text):
            try:
                value, end = self._decoder.raw_decode(text, at)
                end = _end_of_blanks(text, end)
                if not isinstance(value, dict):
                    raise ValueError("not a JSON object")
                if end < len(text) and text[end] != "{":  # the object may be a part of another one
                    raise ValueError("more stands behind a JSON object")
            except (ValueError, RecursionError) as error:
                self._wrong.append(str(getattr(error, "msg", error)))
                pieces += 1
                begins = _BEGINNING.search(text, at + 1) if pieces < _PIECES else None
                if begins is None:
                    break
                at = begins.start()
            else:
                found.append(value)
                at = end
        return found

    def _take(self, document: Mapping[str, Any], begin: int, time_us: int) -> None:
        before = len(self._wrong)
        meta = self._part_of(document, "meta")
        group, subid = self._name(document, "grouplabel"), self._name(meta, "subid")
        if len(self._wrong) > before:  # to which series the values belong is not known
            return
        if document.get("values") is None and document.get("etimes") is None:
            self._wrong.append("no values")
        etimes, texts = self._columns(document, "etimes")
        values, more_texts = self._columns(document, "values")
        texts.update(more_texts)
        if not (values or etimes or texts):
            return
        moment = meta.get("time")
        self.blocks_at(begin).add(
            group or "",
            self._source.subid if subid is None else subid,
            step=step_of(etimes),
            time_us=time_us if moment is None else parse_time(moment, time_us),
            values={name: number(value) for name, value in values.items()},
            etimes={name: number(value) for name, value in etimes.items()},
            texts=texts,
        )

    def _part_of(self, document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        part = document.get(key)
        if part is None or isinstance(part, dict):
            return part or {}
        self._wrong.append("%s is not an object" % key)
        return {}

    def _name(self, document: Mapping[str, Any], key: str) -> Optional[str]:
        name = document.get(key)
        if name is None or isinstance(name, (str, int, float)):
            return None if name is None else str(name)
        self._wrong.append("%s is not a text" % key)
        return None

    def _columns(self, document: Mapping[str, Any], key: str) -> Tuple[Dict[str, float], Dict[str, str]]:
        """Return the numbers and the texts among typed values; a value may also stand there without its type."""
        numbers: Dict[str, float] = {}
        texts: Dict[str, str] = {}
        for name, item in self._part_of(document, key).items():
            kind, value = (item.get("type"), item.get("value")) if isinstance(item, dict) else (None, item)
            try:
                found = typed(kind, value)
            except ValueError as error:
                self._wrong.append("%.100s: %s" % (name, error))
                continue
            if isinstance(found, str):
                texts[name] = found
            else:
                numbers[name] = found
        return numbers, texts

    def _merged(self, pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
        """Make an object; of two parts with one name both count, of two values the last one, as in FfDL."""
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        found = {}
        for key, value in pairs:
            before = found.get(key)
            if isinstance(before, dict) and isinstance(value, dict) and not before.keys() & value.keys():
                value = {**before, **value}
            elif key in found:
                self._wrong.append("%.100s is there twice" % key)
            found[key] = value
        return found

    def _count(self, begin: int, time_us: int) -> None:
        """Count a line in the note of the stretch that is being gathered."""
        notes = self.records_at(begin)
        if notes:
            before = notes[0]
            notes[0] = counted_note(before["count"] + 1, before["text"].partition(" ")[2], before["time"])
            return
        what = (
            "of the lines of evaluation metrics could not be understood, wholly or in part; the first in %s "
        )
        what += "at byte %d: %s"
        notes.append(counted_note(1, what % (self._source.name, begin, self._wrong[0]), time_us))


def _integer(digits: str) -> float:
    try:
        return int(digits)
    except ValueError:  # newer versions of Python read so many digits, and no more
        return float(digits)


def _end_of_blanks(text: str, at: int) -> int:
    """Return where something else begins; a file that was cut while it was written has NULs before that."""
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at
