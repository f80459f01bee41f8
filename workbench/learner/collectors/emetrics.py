"""FfDL's ``emetrics_file``: points that training code itself writes into ``evaluation-metrics.txt``.

A line: ``{"meta": {"time"?, "subid"?, ...}, "grouplabel": "train", "etimes": {"iteration": {"type": "INT",
"value": 1}}, "values": {"loss": {"type": 3, "value": "0.5"}}}``; types by name or numbered from 0 as in
FfDL, or none.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

from workbench.learner.collectors.sources import path_of, walk
from workbench.learner.collectors.streams import LineStream, Stream, StreamCollector, StreamSource
from workbench.learner.collectors.values import Number, number, parse_time, step_of, typed

FILE_NAME = "evaluation-metrics.txt"


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
        return _EmetricsStream(source, offset, until, self.note)


class _EmetricsStream(LineStream):
    """One file of evaluation metrics."""

    def __init__(
        self, source: StreamSource, offset: int, until: Optional[int], note: Callable[[str], None]
    ) -> None:
        super().__init__(offset, until)
        self._source = source
        self._note = note

    def line(self, text: bytes, begin: int, time_us: int) -> None:
        """Take one point; a line that is none is named once and left out."""
        if not text.strip():
            return
        try:
            document = json.loads(text.decode("utf-8", "replace"))
            if not isinstance(document, dict):
                raise ValueError("not a JSON object")
            meta = document.get("meta") or {}
            etimes, texts = _columns(document.get("etimes"))
            values, more_texts = _columns(document.get("values"))
            texts.update(more_texts)
            moment = meta.get("time")
            subid = self._source.subid if meta.get("subid") is None else str(meta["subid"])
            group = str(document.get("grouplabel") or "")
        except (ValueError, AttributeError, TypeError, RecursionError, OverflowError) as error:
            self._note("%s: a line at byte %d is left out: %s" % (self._source.name, begin, error))
            return
        self.blocks_at(begin).add(
            group,
            subid,
            step=step_of(etimes),
            time_us=time_us if moment is None else parse_time(moment, time_us),
            values=values,
            etimes=etimes,
            texts=texts,
        )


def _columns(description: Any) -> Tuple[Dict[str, Number], Dict[str, str]]:
    """Return the numbers and the texts among typed values; a value may also stand there without its type."""
    numbers: Dict[str, Number] = {}
    texts: Dict[str, str] = {}
    for name, item in (description or {}).items():
        kind, value = (item.get("type"), item.get("value")) if isinstance(item, dict) else (None, item)
        found = typed(kind, value)
        if isinstance(found, str):
            texts[name] = found
        else:
            numbers[name] = number(found)
    return numbers, texts
