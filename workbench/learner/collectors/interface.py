"""The contract of collectors: what turns a learner's output and files into records.

A collector runs in the learner's scribe, with nothing but the standard library of Python 3.8; or
at the reader, over the files that an agent without Python left behind. It is fed in order and asked often::

    collector = RegexCollector(metrics, context)
    collector.restore(cursor)         # of the last record of this collector that was written, if there is one
    collector.output(data, end, now)  # output from collector.output_offset on, cut anywhere
    more = collector.poll(now)        # after output, when files changed, every 100 ms while collector.waiting
    records = collector.take()        # to be written in this order
    more = collector.finish(now)      # the learner has ended: again, with take between, until it is False

What a collector promises:

1. Every record carries a ``cursor`` (JSON). A new collector that is restored from the cursor of the last
   record that was written gives exactly the records' points that follow it: none twice, none left out, at
   whatever instant the old one died.
2. It never waits: ``poll`` reads a bounded amount.
3. What it cannot read it names in a ``note`` record and leaves out; it raises nothing for what training
   code wrote.
"""

from __future__ import annotations

import contextlib
import json
import os
from abc import ABC, abstractmethod
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from workbench.learner.collectors.folder_watch import SharedInotify
from workbench.learner.collectors.lines import LineCutter

Record = Dict[str, Any]
"""One record as ``workbench.learner`` says it, without ``seq``."""


class Context(NamedTuple):
    """What a collector knows of the learner that it collects from."""

    learner_dir: str
    log_dir: str
    job_state_dir: str
    learner: int
    environment: Mapping[str, str]
    """What the command sees; ``in:`` is expanded with it."""
    owns_log_dir: bool
    """Whether files under ``log_dir`` are this learner's to collect: of a shared one ``learners`` take turns."""
    writable: Tuple[str, ...] = ()
    """Folders that the command's container writes in: no link in them is to lead out of them."""
    learners: int = 1
    """How many learners write into ``log_dir``."""
    marker: str = ""
    """What ``FABRIC_LEARNER`` of all processes of the attempt begins with."""
    hosts: Tuple[str, ...] = ()
    """The learners' host names where they share ``log_dir`` and nothing else, as pods do: each reads its own files."""
    inotify: Optional[SharedInotify] = None
    """What the learner's collectors watch their files with, all of them together."""

    def begin_us(self) -> int:
        """Return when the learner began, in microseconds: what was written before is not its command's."""
        moments = []
        with contextlib.suppress(OSError):
            moments.append(os.stat(os.path.join(self.learner_dir, "launch.json")).st_mtime_ns // 1000)
        with contextlib.suppress(OSError, ValueError, AttributeError):
            with open(os.path.join(self.learner_dir, "state.json"), "rb") as file:
                started_us = json.loads(file.read()).get("started_us")
            if isinstance(started_us, int):
                moments.append(started_us)
        return min(moments, default=0)

    @classmethod
    def from_launch(cls, launch: Mapping[str, Any], learner_dir: str) -> Context:
        """Read it from a launch document (``launch.json``)."""
        environment = dict(launch.get("env") or {})
        log_dir = str(launch.get("log_dir") or environment.get("LOG_DIR") or "")
        learner = int(launch.get("learner") or 1)
        is_shared = bool(launch.get("log_dir_shared"))
        hosts = tuple(launch.get("learner_hosts") or ()) if is_shared else ()
        return cls(
            learner_dir=learner_dir,
            log_dir=log_dir,
            job_state_dir=str(environment.get("JOB_STATE_DIR") or os.path.dirname(log_dir)),
            learner=learner,
            environment=environment,
            owns_log_dir=learner == 1 or not is_shared or bool(hosts),
            writable=tuple(launch.get("writable") or ()),
            learners=int(launch.get("learners") or 1) if is_shared else 1,
            marker="%s/%s/%s" % (launch.get("home"), launch.get("job"), launch.get("attempt")),
            hosts=hosts,
        )


class Collector(ABC):
    """Turns what a learner prints and writes into records. One instance a learner, used from one thread."""

    name: str
    """Also each record's ``source``; a restarted scribe finds the cursor by it."""
    wants_output: bool = False
    """Whether :meth:`output` is to be called at all."""

    def __init__(self, metrics: Mapping[str, Any], context: Context) -> None:
        self.metrics = metrics
        self.context = context
        self._cutter = LineCutter(0)

    @property
    def output_offset(self) -> int:
        """From which byte of the output on it has to be fed: 0, or where the restored cursor says."""
        return self._cutter.offset

    @abstractmethod
    def restore(self, cursor: Any) -> None:
        """Go on where a record with this cursor ends. Called before anything else, at most once."""

    @abstractmethod
    def cursor(self) -> Any:
        """Say where to go on when all records that were taken are written; nothing may be waiting in it.

        It lets the scribe move on in output that holds no points (in a usage record, say). Small, plain JSON.
        """

    def output(self, data: bytes, end_offset: int, time_us: int) -> None:
        """Take output in order, from :attr:`output_offset` on, cut anywhere.

        Args:
            data: the bytes; they follow those of the last call.
            end_offset: where in the output they end.
            time_us: when they were printed, as exactly as it is known.
        """
        for text, end in self._cutter.feed(data, end_offset):
            self.line(text, end, time_us)

    def pass_over(self, end_offset: int, time_us: int) -> bool:
        """Say whether output up to an offset need not be read, and take it as if it had been.

        It follows what was taken last, and was printed at ``time_us``. So output in which a collector looks for
        nothing costs next to nothing. Output that is read after it begins with a line, which may lie before the offset.
        """
        return False

    def line(self, text: bytes, end_offset: int, time_us: int) -> None:  # noqa: B027 - one that reads files has no lines
        """Take one line of output without its end, by default called by :meth:`output`."""

    @property
    def waiting(self) -> bool:
        """Whether points wait to be gathered into a block; a :meth:`poll` 100 ms later gives them out."""
        return False

    @property
    def descriptor(self) -> Optional[int]:
        """A descriptor that is readable when a :meth:`poll` would find new files; None: it is asked at intervals."""
        return None

    @property
    def is_watched(self) -> bool:
        """Whether :attr:`descriptor` reports all that a :meth:`poll` would find: one is made once a minute then."""
        return False

    def close(self) -> None:  # noqa: B027 - one that only reads output has nothing to close
        """Close what is open: the collector is not used any more, whether the learner has ended or not."""

    def search(self) -> None:  # noqa: B027 - one that only reads output has nothing to look for
        """Look for new files at the next :meth:`poll`, however little time has passed: there are some."""

    def poll(self, now_us: int) -> bool:
        """Look at files and at the clock; return whether there is more to read at once."""
        return False

    @abstractmethod
    def take(self) -> List[Record]:
        """Give the records that are finished, in order, each with its ``cursor`` and ``source``."""

    @abstractmethod
    def finish(self, now_us: int) -> bool:
        """Read on to the very end: the learner has ended. Return whether there is more."""
