"""Recovers the journal of an ended pod from the logs of its side-car and of its learner."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final

from backends.contract.cluster import Absent, Cluster, Invalid
from backends.contract.host import Chunk
from runners.pod.names import LEARNER, SIDE_CAR
from runners.pod.sh_agent import state_of
from workbench.learner.host.journals import SHARE_BYTES
from workbench.learner.pod.log_dump import Part, parse
from workbench.values import dataclass

STATE: Final = "state"
ANCHOR_BYTES: Final = 4096
_ORDER: Final = ("output", "index", "setup", "setup_index", "records")


@dataclass(slots=True)
class JournalRemains:
    """The journal of a learner whose pod has ended. Lost bytes are replaced by filler and counted."""

    parts: dict[str, list[Part]] = field(default_factory=dict)
    state: bytes = b""
    missing_bytes: int = 0
    plain: bool = False
    """Whether only the output is known, from the learner's log."""

    def after(self, known: Mapping[str, int]) -> dict[str, Chunk]:
        """Return the next chunk of each file from these offsets on; the state only with the last chunk."""
        found: dict[str, Chunk] = {}
        whole = True
        for name in _ORDER:
            offset = known.get(name, 0)
            data, end = self._next(name, offset)
            if data:
                found[name] = Chunk(data, offset, end)
            whole = whole and offset + len(data) >= end
        if whole and self.state and zlib.crc32(self.state) != known.get(STATE, 0):
            found[STATE] = Chunk(self.state, 0, len(self.state))
        return found

    def read(self, offsets: Mapping[str, int]) -> dict[str, Chunk]:
        """Return chunks of the named files from these offsets on."""
        found = {}
        for name, offset in offsets.items():
            data, end = self._next(name, offset)
            if name in self.parts:
                found[name] = Chunk(data, offset, end)
        return found

    def _next(self, name: str, offset: int) -> tuple[bytes, int]:
        parts = self.parts.get(name) or []
        end = max((start + len(data) for start, _, data in parts), default=0)
        for start, _, data in parts:
            if start <= offset < start + len(data):
                return bytes(data[offset - start : offset - start + SHARE_BYTES]), end
        later = min((start for start, _, _ in parts if start > offset), default=0)
        if not later:
            return b"", end
        gap = later - offset
        if name == "output" and not self.missing_bytes:
            self.missing_bytes = gap
        return _filler(name, gap, later), end


def read_remains(cluster: Cluster, pod: Mapping[str, Any]) -> JournalRemains:
    """Read the journal from the logs of an ended pod; empty if the logs are gone."""
    name = pod["metadata"]["name"]
    parts = parse(_lines(cluster, name, SIDE_CAR))
    remains = JournalRemains()
    if parts:
        remains.state = b"".join(data for _, _, data in parts.pop(STATE, []))
        remains.parts = {name: sorted(found, key=lambda part: part[0]) for name, found in parts.items()}
        _fill_from_log(cluster, name, remains)
        return remains
    printed = b"".join(_log(cluster, pod["metadata"]["name"], LEARNER))
    # The side-car was killed or has no Python: only the learner's log is left.
    remains.plain = True
    remains.state = state_of(pod)
    if printed:
        remains.parts = {"output": [(0, len(printed), printed)]}
    return remains


def _fill_from_log(cluster: Cluster, pod: str, remains: JournalRemains) -> None:
    """Prepend output from the learner's log that the side-car did not print."""
    output = remains.parts.get("output") or []
    if not output or output[0][0] == 0:
        return
    first, end, data = output[0]
    printed = b"".join(_log(cluster, pod, LEARNER))
    earlier = before(printed, bytes(data[:ANCHOR_BYTES]), end - first)[-first:]
    if earlier:
        remains.parts["output"] = [(first - len(earlier), end, earlier), *output]


def before(printed: bytes, anchor: bytes, rest_bytes: int) -> bytes:
    """Return the part of a log before ``anchor``, which is ``rest_bytes`` before the end of the whole output.

    The log may have fewer bytes after it: most runtimes drop carriage returns at line ends, and bytes that were
    buffered when the container was killed. So the anchor is searched; if it is not found, nothing is returned.
    """
    expected = max(0, len(printed) - rest_bytes)
    found = (printed.find(sought, expected) for sought in (anchor, anchor.replace(b"\r\n", b"\n")))
    return printed[: next((at for at in found if at > 0), 0)]


def _filler(name: str, gap: int, later: int) -> bytes:
    """Return filler for missing bytes; in the output it is a line that tells the reader."""
    count = min(gap, SHARE_BYTES)
    if name == "output":
        text = f"[fabric: {gap} bytes of output are missing here: the cluster's log had rotated]".encode()
        if count <= len(text):
            return b"." * (count - 1) + b"\n"
        return text + b" " * (count - len(text) - 1) + b"\n"
    if name.endswith("index"):
        # Entries of zeros: readers skip them.
        return b"\0" * count
    note = json.dumps(
        {"kind": "note", "level": "warning", "text": f"{gap} bytes of records are missing"}
    ).encode()
    return note + b" " * (count - len(note) - 1) + b"\n" if count > len(note) else b" " * (count - 1) + b"\n"


def _lines(cluster: Cluster, pod: str, container: str) -> Iterator[bytes]:
    unread = b""
    for piece in _log(cluster, pod, container):
        *lines, unread = (unread + piece).split(b"\n")
        yield from lines
    if unread:
        yield unread


def _log(cluster: Cluster, pod: str, container: str) -> Iterable[bytes]:
    with contextlib.suppress(Absent, Invalid):
        log = cluster.logs(pod, container)
        try:
            yield from log
        finally:
            log.close()
