"""The collector ``auto``: files that libraries write, and printed numbers that come again and again."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Set

from workbench.learner.collectors.auto.files import FoundFiles
from workbench.learner.collectors.auto.printed import PrintedNumbers
from workbench.learner.collectors.interface import Collector, Context, Record


class AutoCollector(Collector):
    """Reads what nobody described. A printed series stops where a file gives one of the same name."""

    name = "auto"
    wants_output = True

    def __init__(self, metrics: Mapping[str, Any], context: Context) -> None:
        super().__init__(metrics, context)
        self._files = FoundFiles(context)
        self._printed = PrintedNumbers(self.name, tuple(map(str, metrics.get("names") or ())))
        self._cursor: Dict[str, Any] = {"printed": None, "files": None}
        self._finished = False
        self._printed_names: Set[str] = set()

    @property
    def output_offset(self) -> int:
        """The beginning: what a line means depends on those before it."""
        return 0

    @property
    def waiting(self) -> bool:
        """Whether points wait for the next poll."""
        return self._printed.waiting or self._files.waiting

    @property
    def descriptor(self) -> Optional[int]:
        """What is readable when files were made or written."""
        return self._files.descriptor

    @property
    def is_watched(self) -> bool:
        """Whether all changes of files are reported; output is given, not looked for."""
        return self._files.is_watched

    def search(self) -> None:
        """Look for new files at the next poll."""
        self._files.search()

    def close(self) -> None:
        """Close the files and the watch."""
        self._files.close()

    def restore(self, cursor: Any) -> None:
        """Go on behind the record that has this cursor."""
        if not isinstance(cursor, dict):
            raise ValueError("a cursor that this version cannot read")
        self._cursor = {"printed": cursor.get("printed"), "files": cursor.get("files")}
        if self._cursor["printed"] is not None:
            self._printed.restore(self._cursor["printed"])
        if self._cursor["files"] is not None:
            self._files.restore(self._cursor["files"])

    def cursor(self) -> Any:
        """Say where to go on when all that was taken is written."""
        return {"printed": self._printed.cursor(), "files": self._files.cursor}

    def output(self, data: bytes, end_offset: int, time_us: int) -> None:
        """Take what the learner prints."""
        self._printed.output(data, end_offset, time_us)

    def pass_over(self, end_offset: int, time_us: int) -> bool:
        """Leave output unread where lines gave nothing for long."""
        return self._printed.pass_over(end_offset, time_us)

    def poll(self, now_us: int) -> bool:
        """Read on in the files, and close the batch of printed points if it is time."""
        more = self._files.poll(now_us)
        self._printed.poll(now_us)
        return more

    def take(self) -> List[Record]:
        """Give the records of the files, then the printed ones."""
        records: List[Record] = []
        for record in self._files.take():
            self._cursor["files"] = record.get("cursor", self._files.cursor)
            records.append({**record, "source": self.name, "cursor": dict(self._cursor)})
        for record in self._printed.take():
            self._cursor["printed"] = record["cursor"]
            kept = self._undoubled(record)
            if kept is not None:
                self._cursor["files"] = self._files.cursor
                records.append({**kept, "cursor": dict(self._cursor)})
        return records

    def finish(self, now_us: int) -> bool:
        """Read the files to their end, then what was printed."""
        if self._files.finish(now_us):
            return True
        if not self._finished:
            self._finished = True
            self._printed.finish(now_us)
        return False

    def _is_printed(self, name: str) -> bool:
        """Whether lines give a series; of exactly this name no file gives one from then on."""
        if self._files.gives(name):
            return False
        if name not in self._printed_names:
            self._printed_names.add(name)
            self._files.claim_printed(name)
        return True

    def _undoubled(self, record: Record) -> Optional[Record]:
        """Return printed points without the series that files give; None where nothing is left."""
        if record.get("kind") != "metrics":
            return record
        group = record["group"]
        values = {
            name: column
            for name, column in record["values"].items()
            if self._is_printed("%s/%s" % (group, name) if group else name)
        }
        return {**record, "values": values} if values else None
