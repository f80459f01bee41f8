"""Runs a collector in a process of its own, where one that does not come to an end can be ended.

In the scribe the collector runs in the main thread, and a regular expression that takes too long is
interrupted. A reader collects in a thread, where nothing can interrupt it and it would hold up all others:
there it runs in a process of its own. A call is one line of JSON, followed by the bytes of output; the answer is
one line.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
import weakref
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, List, Mapping, Optional

from workbench.learner.collectors.batches import note
from workbench.learner.collectors.interface import Collector, Context, Record
from workbench.learner.collectors.registry import load

if TYPE_CHECKING:
    import subprocess

DEADLINE_SECONDS = 60.0
"""How long one call may take before the collector is ended: far more than any needs."""

_SCRIPT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from workbench.learner.collectors.subprocess import serve; serve()"
)


class IsolatedCollector(Collector):
    """A collector in another process. Raises RuntimeError with what that one raised, or when it takes too long."""

    def __init__(self, kind: str, metrics: Mapping[str, Any], context: Context) -> None:
        import subprocess  # a scribe, which never gets here, would pay a megabyte for it

        super().__init__(metrics, context)
        self.name = kind
        root = os.path.abspath(__file__)
        for _level in ("collectors", "learner", "workbench", "root"):
            root = os.path.dirname(root)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _SCRIPT, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._end = weakref.finalize(self, _end, self._process)
        self._received = b""
        self._last_answer: Mapping[str, Any] = {}
        plain = context._replace(environment=dict(context.environment), inotify=None)
        self._ask("make", kind, dict(metrics), list(plain))
        self.name = self._last_answer["name"]
        self.wants_output = self._last_answer["wants_output"]

    @property
    def output_offset(self) -> int:
        """From where the other wants to be fed."""
        return int(self._last_answer["output_offset"])

    @property
    def waiting(self) -> bool:
        """Whether the other is waiting."""
        return bool(self._last_answer["waiting"])

    def restore(self, cursor: Any) -> None:
        """Hand the cursor over."""
        self._ask("restore", cursor)

    def cursor(self) -> Any:
        """Ask the other."""
        return self._ask("cursor")

    def output(self, data: bytes, end_offset: int, time_us: int) -> None:
        """Hand output over."""
        self._ask("output", end_offset, time_us, data=data)

    def close(self) -> None:
        """Let the other close its files."""
        if self._end.alive:
            self._ask("close")

    def poll(self, now_us: int) -> bool:
        """Let the other look."""
        return bool(self._ask("poll", now_us))

    def take(self) -> List[Record]:
        """Fetch the other's records."""
        records: List[Record] = self._ask("take") if self._end.alive else []
        return records

    def finish(self, now_us: int) -> bool:
        """Let the other read on to the end."""
        return bool(self._ask("finish", now_us))

    def _ask(self, what: str, *arguments: Any, data: bytes = b"") -> Any:
        assert self._process.stdin is not None, "it was started with one"
        header = json.dumps({"do": what, "with": arguments, "bytes": len(data)}).encode() + b"\n"
        try:
            self._process.stdin.write(header + data)
            self._process.stdin.flush()
            answer = json.loads(self._line())
        except (OSError, ValueError) as error:
            self._end()
            raise RuntimeError("it was ended: %s" % error) from error
        self._last_answer = answer
        if "error" in answer:
            self._end()
            raise RuntimeError(answer["error"])
        return answer["value"]

    def _line(self) -> bytes:
        assert self._process.stdout is not None, "it was started with one"
        descriptor = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while b"\n" not in self._received:
            if not poll.poll(DEADLINE_SECONDS * 1000):
                raise OSError("it takes too long")
            part = os.read(descriptor, 1 << 20)
            if not part:
                raise OSError("it died")
            self._received += part
        line, _, self._received = self._received.partition(b"\n")
        return line


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    process.wait()


def serve() -> None:
    """Run in the other process: answer calls until stdin ends."""
    calls, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # whatever a collector prints is no answer
    collector = None
    while True:
        line = calls.readline()
        if not line:
            return
        call = json.loads(line)
        data = calls.read(call["bytes"])
        try:
            if call["do"] == "make":
                collector, value = _make(*call["with"]), None
            else:
                value = getattr(collector, call["do"])(*([data] if data else []), *call["with"])
        except Exception as error:  # goes back to who asked, whatever it is
            _answer(answers, {"error": str(error) or type(error).__name__})
            return
        assert collector is not None, "it is made first"
        properties = {
            name: getattr(collector, name) for name in ("name", "wants_output", "output_offset", "waiting")
        }
        _answer(answers, {"value": value, **properties})


def _make(kind: str, metrics: Mapping[str, Any], context: List[Any]) -> Collector:
    return load(kind, metrics)(metrics, Context(*context))


def _answer(answers: BinaryIO, answer: Mapping[str, Any]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


class FailsafeCollector(Collector):
    """Wraps a collector and never raises: when the wrapped one does, it is dropped and a note says so."""

    def __init__(self, name: str, build: Callable[[], Collector]) -> None:
        self.name = name
        self._inner: Optional[Collector] = None
        self._cursor: Any = None
        self._notes: List[Record] = []
        try:
            self._inner = build()
            self.name = self._inner.name
            self.wants_output = self._inner.wants_output
        except Exception as error:  # whatever a plug-in or a user's regular expression raises
            self._put_aside("cannot be used", error)

    @property
    def inner(self) -> Optional[Collector]:
        """The collector inside, None once it was put aside."""
        return self._inner

    @property
    def output_offset(self) -> int:
        """From where the collector inside wants to be fed."""
        return 0 if self._inner is None else self._inner.output_offset

    @property
    def waiting(self) -> bool:
        """Whether the collector inside is waiting."""
        return self._inner is not None and self._inner.waiting

    def restore(self, cursor: Any) -> None:
        """Hand the cursor on, if there is one; one that cannot be read puts the collector aside."""
        if cursor is not None:
            self._cursor = cursor
            self._call(lambda inner: inner.restore(cursor))

    def cursor(self) -> Any:
        """Say where the collector inside goes on, or where it was put aside."""
        found = self._call(lambda inner: inner.cursor())
        return self._cursor if self._inner is None else found

    @property
    def descriptor(self) -> Optional[int]:
        """The descriptor of the collector inside."""
        return None if self._inner is None else self._inner.descriptor

    @property
    def is_watched(self) -> bool:
        """Whether all that the collector inside would find is reported; one that was put aside looks for nothing."""
        return self._inner is None or self._inner.is_watched

    def close(self) -> None:
        """Close the collector inside."""
        self._call(lambda inner: inner.close())

    def output(self, data: bytes, end_offset: int, time_us: int) -> None:
        """Hand output on."""
        self._call(lambda inner: inner.output(data, end_offset, time_us))

    def pass_over(self, end_offset: int, time_us: int) -> bool:
        """Ask the collector inside."""
        return bool(self._call(lambda inner: inner.pass_over(end_offset, time_us)))

    def line(self, text: bytes, end_offset: int, time_us: int) -> None:
        """Hand a line on."""
        self._call(lambda inner: inner.line(text, end_offset, time_us))

    def search(self) -> None:
        """Let the collector inside look for new files."""
        self._call(lambda inner: inner.search())

    def poll(self, now_us: int) -> bool:
        """Let the collector inside look."""
        return bool(self._call(lambda inner: inner.poll(now_us)))

    def take(self) -> List[Record]:
        """Give the records of the collector inside, or the note that it was put aside."""
        records: List[Record] = self._call(lambda inner: inner.take()) or []
        if records:
            self._cursor = records[-1].get("cursor", self._cursor)
        records.extend({**record, "source": self.name, "cursor": self._cursor} for record in self._notes)
        self._notes = []
        return records

    def finish(self, now_us: int) -> bool:
        """Let the collector inside read on to the end."""
        return bool(self._call(lambda inner: inner.finish(now_us)))

    def _call(self, action: Callable[[Collector], Any]) -> Any:
        if self._inner is None:
            return None
        try:
            return action(self._inner)
        except Exception as error:  # a collector's fault is never the learner's
            self._put_aside("stopped", error)
            return None

    def _put_aside(self, what: str, error: Exception) -> None:
        if self._inner is not None:
            with contextlib.suppress(Exception):  # one that stopped may fail at this, too
                self._inner.close()
        self._inner = None
        self.wants_output = False
        text = "the collector %s %s: %s" % (self.name, what, str(error) or type(error).__name__)
        self._notes.append(note(text, int(time.time() * 1e6), level="error"))
