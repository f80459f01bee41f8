"""FfDL's ``regex_extractor``: reads metrics from lines of text, by regular expressions with macros."""

from __future__ import annotations

import os
from typing import Any, Callable, Iterator, List, Mapping, Optional, Sequence

from workbench.learner.collectors.interface import Context
from workbench.learner.collectors.lines import LINE_LIMIT, LineCutter
from workbench.learner.collectors.regex.groups import Group
from workbench.learner.collectors.regex.watchdog import Watchdog
from workbench.learner.collectors.regex.windows import RuleMatch, Windows
from workbench.learner.collectors.sources import OWN_OUTPUT_NAMES, is_own_output, path_of, walk
from workbench.learner.collectors.streams import BlockStream, Stream, StreamCollector, StreamSource

LOOKAHEAD = 4
"""The window's length in lines where the manifest sets none."""
LOOKAHEAD_LIMIT = 100

USER_LOG = "user_log.txt"


class RegexCollector(StreamCollector):
    """Reads the learner's own output and FfDL's log files in LOG_DIR, or the files that ``in:`` names."""

    name = "regex_extractor"

    def __init__(self, metrics: Mapping[str, Any], context: Context) -> None:
        super().__init__(metrics, context)
        self._groups = [Group(str(name), found) for name, found in (metrics.get("groups") or {}).items()]
        if not self._groups:
            raise ValueError("evaluation_metrics has no groups")
        self._lookahead = min(int(metrics.get("line_lookahead") or LOOKAHEAD), LOOKAHEAD_LIMIT)
        self._path = path_of(str(metrics.get("source") or ""), context)
        self._whole = os.path.normpath(self._path) == os.path.normpath(context.log_dir)
        self.wants_output = self._whole or is_own_output(self._path, context)

    def find(self) -> Iterator[StreamSource]:
        """Yield the log files that exist now; the name of a folder directly below LOG_DIR is the subid of its files."""
        if not self.may_read_files() or (self.wants_output and not self._whole):
            return
        for path, name, below in walk(self._path, self.context, self._is_log, depth=1, watch=self.watch):
            if not is_own_output(path, self.context):
                yield StreamSource(path, name, subid=below)

    def label(self, source: StreamSource) -> str:
        """Return the file's own name: a folder may hold several logs."""
        return super().label(source) if self._whole else source.name

    def _is_log(self, name: str) -> bool:
        if self._whole:
            return name == USER_LOG or name in OWN_OUTPUT_NAMES
        return name.endswith((".log", ".txt"))

    def open_stream(self, source: Optional[StreamSource], offset: int, until: Optional[int]) -> Stream:
        """Open a file, or the output (None), for matching from an offset on."""
        windows = Windows([group.rule for group in self._groups], self._lookahead, offset)
        return _TextStream(windows, self._groups, source, offset, until, self.note)


class _TextStream(BlockStream):
    """One stream of text, matched through a sliding window."""

    def __init__(
        self,
        windows: Windows,
        groups: Sequence[Group],
        source: Optional[StreamSource],
        offset: int,
        until: Optional[int],
        note: Callable[[str], None],
    ) -> None:
        super().__init__(offset, until)
        self._windows = windows
        self._groups = groups
        self._name = source.name if source else "the output"
        self._subid = source.subid if source else ""
        self._note = note
        self._cutter = LineCutter(offset)

    @property
    def position(self) -> int:
        """The offset of the first line that may still become part of a match."""
        return self._windows.offset

    def feed(self, data: bytes, end_offset: int, time_us: int) -> None:
        """Take the next bytes and add the matches that no later line can change."""
        with Watchdog() as dog:
            for text, end in self._cutter.feed(data, end_offset):
                hits = self._windows.push(text.decode("utf-8", "replace") + "\n", end, time_us, dog)
                if hits:
                    self._add(hits)
        self.read_offset = end_offset
        self._add_notes()

    def finish(self, time_us: int) -> None:
        """Match the last lines: no more will come."""
        with Watchdog() as dog:
            hits: List[RuleMatch] = []
            for text, end in self._cutter.finish(self.read_offset):
                hits.extend(self._windows.push(text.decode("utf-8", "replace"), end, time_us, dog))
            hits.extend(self._windows.finish(dog))
        self._add(hits)
        self._add_notes()

    def _add(self, hits: Sequence[RuleMatch]) -> None:
        for hit in hits:
            group = self._groups[hit.rule]
            reading = group.read(hit.match.groupdict(), hit.time_us, self._subid)
            for name in reading.unreadable:
                self._note(
                    "group %s: %s is not always of its type; it is left out there" % (group.name, name)
                )
            self.blocks_at(hit.begin).add(
                group.name,
                reading.subid,
                step=reading.step,
                time_us=reading.time_us,
                values=reading.values,
                etimes=reading.etimes,
                texts=reading.texts,
            )

    def _add_notes(self) -> None:
        while self._windows.slow:
            name = self._windows.slow.pop()
            self._note("group %s: its regex takes too long and is not used any more" % name)
        if self._cutter.cut_short:
            self._note("%s: of lines above %d bytes only the beginning is matched" % (self._name, LINE_LIMIT))
            self._cutter.cut_short = 0
