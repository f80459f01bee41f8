"""Runs a collector as the scribe does, kills it at any instant, says which points were written in the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import strategies as st

from workbench.learner.collectors.interface import Collector, Context, Record

NOW_US = 1_800_000_000_000_000

Points = dict[tuple[str, str, str], list[tuple[int | None, Any]]]


def context(root: Path, *, learner: int = 1, owns_log_dir: bool = True, **environment: str) -> Context:
    """A learner's folders below ``root``, made."""
    for folder in ("learner", "job/logs"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    job = root / "job"
    return Context(
        learner_dir=str(root / "learner"),
        log_dir=str(job / "logs"),
        job_state_dir=str(job),
        learner=learner,
        environment={"JOB_STATE_DIR": str(job), "LOG_DIR": str(job / "logs"), **environment},
        owns_log_dir=owns_log_dir,
    )


class Rig:
    """A collector, the output it is fed, and the records that were written of it.

    The collector is closed when it is killed or the test ends (:meth:`close_all`): it holds files and watches.
    """

    _open: ClassVar[list[Rig]] = []

    def __init__(self, make: Callable[[], Collector]) -> None:
        self.make = make
        self.output = b""
        self.written: list[Record] = []
        self.now_us = NOW_US
        self.collector = make()
        self._fed = 0
        self._has_passed_over = False
        self._open.append(self)

    @classmethod
    def close_all(cls) -> None:
        """Close every collector that is left."""
        while cls._open:
            cls._open.pop().collector.close()

    def print(self, data: bytes, *, cuts: Iterable[int] = ()) -> None:
        """Let the learner print."""
        begin = len(self.output)
        self.output += data
        for end in [*sorted(begin + cut % (len(data) + 1) for cut in cuts), len(self.output)]:
            self._feed(end)

    def _feed(self, end: int) -> None:
        if self.collector.wants_output and end > self._fed:
            begin = self.output.rfind(b"\n", 0, self._fed) + 1 if self._has_passed_over else self._fed
            self._has_passed_over = self.collector.pass_over(end, self.now_us)
            if not self._has_passed_over:
                self.collector.output(self.output[begin:end], end, self.now_us)
            self._fed = end

    def step(self, *, milliseconds: int = 200, lost: int = 0) -> list[Record]:
        """Let time pass, and write what the collector gives, but for the last ``lost`` records."""
        self.now_us += milliseconds * 1000
        while True:
            more = self.collector.poll(self.now_us)
            taken = self._take()
            self.written += taken[: max(0, len(taken) - lost)]
            if lost or not more:
                return taken

    def _take(self) -> list[Record]:
        return [dict(json.loads(json.dumps(record))) for record in self.collector.take()]

    def mark(self) -> None:
        """Write a record of somebody else's that carries the cursor."""
        taken = self._take()
        self.written += taken
        if not self.collector.waiting:
            self.written.append({"kind": "usage", "cursor": json.loads(json.dumps(self.collector.cursor()))})

    def kill(self) -> None:
        """Let another collector go on from what was written."""
        self.collector.close()
        self.collector = self.make()
        for record in reversed(self.written):
            if "cursor" in record:
                self.collector.restore(record["cursor"])
                break
        self._has_passed_over = False
        self._fed = self.collector.output_offset
        self._feed(len(self.output))

    def suffer(self, data: st.DataObject) -> None:
        """Let something or nothing happen, as hypothesis has it: time, another's record, a death with records lost."""
        action = data.draw(st.sampled_from(["nothing", "step", "mark", "kill"]))
        if action == "step":
            self.step(milliseconds=data.draw(st.sampled_from([10, 600])))
        elif action == "mark":
            self.mark()
        elif action == "kill":
            self.step(milliseconds=600, lost=data.draw(st.integers(0, 4)))
            self.kill()

    def finish(self) -> None:
        """The learner has ended."""
        more = True
        while more:
            more = self.collector.finish(self.now_us)
            self.written += self._take()
        self.collector.close()

    @property
    def points(self) -> Points:
        """Every point that was written, by series, in order."""
        return points_of(self.written)

    @property
    def notes(self) -> list[str]:
        """The messages to people."""
        return [record["text"] for record in self.written if record["kind"] == "note"]


def instances_held() -> int:
    """Return how many instances of inotify this process holds; 0 where that cannot be seen."""
    count = 0
    for entry in Path("/proc/self/fd").glob("*"):
        with suppress(OSError):  # the one that reads the folder is closed again
            count += str(entry.readlink()) == "anon_inode:inotify"
    return count


def points_of(records: Iterable[Record]) -> Points:
    """Return every point of these records by group, subid and name, in order."""
    found: Points = {}
    for record in records:
        if record["kind"] == "metrics":
            columns = {**record["values"], **record.get("etimes", {}), **record.get("texts", {})}
            for name, values in columns.items():
                assert len(values) == len(record["steps"]) == len(record["times"])
                series = found.setdefault((record["group"], record["subid"], name), [])
                series += zip(record["steps"], values, strict=True)
    return found
