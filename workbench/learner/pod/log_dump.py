"""The rest of a journal that nobody has read yet, as lines of text: how it is printed at a pod's end, and read.

::

    fabric-rest 1
    output 1048576 262144 9000000        # name, offset, bytes, the published end of the file
    =eNrt...                             # zlib and base64, cut into lines that no log splits
    fabric-rest end

Anything else between the lines is another's and is passed over.
"""

from __future__ import annotations

import base64
import binascii
import os
import zlib
from typing import Dict, Iterable, List, Mapping, Tuple

from workbench.learner.host.journals import FILES, LOGS
from workbench.learner.journal.output import published_end

BEGIN = b"fabric-rest 1"
END = b"fabric-rest end"
LINE_CHARACTERS = 8192
"""The cluster's log splits lines of 16 KiB."""
BLOCK_BYTES = 256 * 1024
"""Compressed by itself: so many bytes are left out at a time where not all fit."""
LINE_OVERHEAD_BYTES = 48
"""What the cluster's log adds to a line."""

Part = Tuple[int, int, bytes]
"""Where it begins, the published end of its file, and its bytes."""


class JournalDump:
    """What of a learner's journal is still to be read, block by block, compressed when it is first asked for."""

    def __init__(self, folder: str, read: Mapping[str, int]) -> None:
        self._folder = folder
        self.ends = ends_of(folder)
        self.spans = {name: (min(read.get(name, 0), end), end) for name, end in self.ends.items()}
        state = _bytes(os.path.join(folder, FILES["state"]), 0, 1 << 20)
        self.state_known = zlib.crc32(state) == read.get("state", 0)
        self._blocks: Dict[Tuple[str, int], bytes] = {}

    @property
    def count(self) -> int:
        """How many bytes are unread, the state aside."""
        return sum(end - start for start, end in self.spans.values())

    def lines(self, limit_bytes: int) -> Tuple[List[bytes], bool]:
        """Return what is to be printed within a limit, and whether that is all. Of the output the end is kept."""
        lines, left, whole = [BEGIN], limit_bytes, True
        for name in ("state", "index", "setup", "setup_index", "records", "output"):
            start, end = self.spans.get(name, (0, 0))
            if name == "state":
                end = os.path.getsize(os.path.join(self._folder, FILES["state"])) if self._has_state() else 0
                start = 0
            printed: List[List[bytes]] = []
            at = end
            while at > start:
                block = max(start, (at - 1) // BLOCK_BYTES * BLOCK_BYTES)
                text = self._printed(name, block, at, end)
                size = sum(len(line) + 1 + LINE_OVERHEAD_BYTES for line in text)
                if size > left:
                    whole = False
                    break
                left -= size
                printed.append(text)
                at = block
            for text in reversed(printed):
                lines.extend(text)
        lines.append(END)
        return lines, whole

    def _has_state(self) -> bool:
        return os.path.exists(os.path.join(self._folder, FILES["state"]))

    def _printed(self, name: str, start: int, stop: int, end: int) -> List[bytes]:
        data = _bytes(os.path.join(self._folder, FILES[name]), start, stop - start)
        packed = base64.b64encode(zlib.compress(data, 6))
        lines = [b"=" + packed[at : at + LINE_CHARACTERS] for at in range(0, len(packed), LINE_CHARACTERS)]
        return [("%s %d %d %d" % (name, start, len(data), end)).encode(), *lines]


def ends_of(folder: str) -> Dict[str, int]:
    """Return the published ends of a learner's files, the state left out."""
    ends = {}
    for log, index in LOGS:
        ends[log] = published_end(os.path.join(folder, FILES[index]))
        ends[index] = _size(os.path.join(folder, FILES[index])) // 24 * 24
    ends["records"] = _size(os.path.join(folder, FILES["records"]))
    return ends


def parse(lines: Iterable[bytes]) -> Dict[str, List[Part]]:
    """Read what was printed; empty when there is nothing of it, or it is not whole."""
    found: Dict[str, List[Part]] = {}
    head: Tuple[str, int, int, int] = ("", 0, 0, 0)
    packed: List[bytes] = []
    inside = ended = False

    def keep() -> None:
        if head[0]:
            data = zlib.decompress(base64.b64decode(b"".join(packed)))
            found.setdefault(head[0], []).append((head[1], head[3], data[: head[2]]))

    try:
        for line in lines:
            line = line.strip()
            if line == BEGIN:
                found, packed, head, inside, ended = {}, [], ("", 0, 0, 0), True, False
            elif not inside:
                continue
            elif line == END:
                keep()
                inside, ended = False, True
            elif line.startswith(b"="):
                packed.append(line[1:])
            else:
                fields = line.split()
                if len(fields) == 4 and fields[0].decode("ascii", "replace") in FILES:
                    keep()
                    packed = []
                    head = (fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]))
    except (ValueError, zlib.error, binascii.Error):
        return {}
    return found if ended else {}


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _bytes(path: str, offset: int, count: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(count)
    except OSError:
        return b""
