"""Collects what training code reports by ``report()``, ``checkpoint()`` and ``progress()``."""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Dict, Iterator, Mapping, Optional

from workbench.learner.collectors.found_checkpoints import FoundCheckpoints
from workbench.learner.collectors.interface import Context
from workbench.learner.collectors.streams import LineStream, Stream, StreamCollector, StreamSource
from workbench.learner.collectors.values import STEP_NAMES, Number, as_step, clipped, number, step_of
from workbench.learner.texts import clean_json

FILE_NAME = "report.jsonl"

_LATEST_US = 10**17

_AGENTS_KEYS = ("seq", "cursor", "cursors", "source", "format")
"""What training code cannot say in a record: by these the agent finds its way."""


class ReportCollector(StreamCollector):
    """Reads the file that ``workbench.learner.report`` appends to, in the learner's own folder."""

    name = "report"
    reads_log_dir = False

    def __init__(self, metrics: Mapping[str, Any], context: Context) -> None:
        super().__init__(metrics, context)
        is_ours = context.learner == 1 or context.learners == 1
        self._found = (
            FoundCheckpoints(context, os.path.join(context.learner_dir, FILE_NAME)) if is_ours else None
        )
        """Of learners that share their folders the first one looks for all."""

    @property
    def waiting(self) -> bool:
        """Whether points wait for the next poll, or a checkpoint may be whole soon."""
        return super().waiting or (self._found is not None and self._found.waiting)

    def cursor(self) -> Any:
        """Say where to go on."""
        return self._batches.cursor(self._batches.begin if super().waiting else self._position())

    def poll(self, now_us: int) -> bool:
        """Look for checkpoints that nobody reports, and read on."""
        if self._found is not None and self._found.search():
            self.search()
        return super().poll(now_us)

    def finish(self, now_us: int) -> bool:
        """Look for them a last time, and read to the end."""
        if self._found is not None:
            self._found.search(ended=True)
            self._found = None
        return super().finish(now_us)

    def find(self) -> Iterator[StreamSource]:
        """Name the file once there is one."""
        path = os.path.join(self.context.learner_dir, FILE_NAME)
        if os.path.exists(path):
            self.watch_file(path)
            yield StreamSource(path, FILE_NAME)
        else:
            self.watch_failed()

    @property
    def is_watched(self) -> bool:
        """Whether what training code reports is noticed; its first report is announced by :meth:`search`."""
        return not self._sources or super().is_watched

    def open_stream(self, source: Optional[StreamSource], offset: int, until: Optional[int]) -> Stream:
        """Begin to read it."""
        return _ReportStream(offset, until, self.note)


class _ReportStream(LineStream):
    """The file, line by line."""

    def __init__(self, offset: int, until: Optional[int], note: Callable[[str], None]) -> None:
        super().__init__(offset, until)
        self._note = note

    def line(self, text: bytes, begin: int, time_us: int) -> None:
        """Take one report; a torn line, as a full disk leaves it, is noted once and skipped."""
        if not text:
            return
        try:
            message = json.loads(text.decode("utf-8", "replace"))
            time_us = _time(message.get("time"), time_us)
            if message.get("kind") == "metrics":
                self._metrics(message, begin, time_us)
            elif message.get("kind") in ("checkpoint", "progress", "note"):
                self.add_record({**_record(message), "time": time_us}, begin)
        except (ValueError, AttributeError, TypeError, RecursionError, OverflowError) as error:
            self._note("report(): a line at byte %d is left out: %s" % (begin, error))

    def _metrics(self, message: Dict[str, Any], begin: int, time_us: int) -> None:
        values: Dict[str, Number] = {}
        etimes: Dict[str, Any] = {}
        """As they were reported, which steps need."""
        texts: Dict[str, str] = {}
        given = message.get("values") or {}
        for name, value in given.items():
            if isinstance(value, str) and value not in ("inf", "-inf"):
                texts[name] = clipped(value)
            elif name in STEP_NAMES and len(given) > 1:
                etimes[name] = value
            else:
                values[name] = _number(value)
        step = as_step(message.get("step"))
        self.blocks_at(begin).add(
            str(message.get("group") or ""),
            "",
            step=step_of(etimes) if step is None else step,
            time_us=time_us,
            values=values,
            etimes={name: _number(value) for name, value in etimes.items()},
            texts=texts,
        )


def _record(message: Dict[str, Any]) -> Dict[str, Any]:
    """Return the reported values; a path stays unchanged, since the files are found by it."""
    return {
        key: value if key == "path" else clean_json(value)
        for key, value in message.items()
        if key not in _AGENTS_KEYS
    }


def _time(value: Any, otherwise_us: int) -> int:
    """Return a reported time if it is plausible, else ``otherwise_us``."""
    return value if type(value) is int and 0 < value < _LATEST_US else otherwise_us


def _number(value: Any) -> Number:
    return value if value is None or isinstance(value, str) else number(value)
