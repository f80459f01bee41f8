"""Uploads a job's code snapshot to a host; its file name is the hash of its content."""

from __future__ import annotations

import hashlib
import io
import time
from pathlib import Path
from typing import BinaryIO, Final, cast

from backends.contract.errors import translated
from backends.contract.host import Host
from runners.interface import LaunchProgress, LaunchRequest
from runners.shared.host_facts import HostFacts

PROGRESS_MIN_BYTES: Final = 2_000_000
PROGRESS_SECONDS: Final = 0.5


def upload_code(
    host: Host, site: HostFacts, request: LaunchRequest, progress: LaunchProgress | None = None
) -> str:
    """Upload a job's snapshot unless the host has it; return its path there, empty for a job without code."""
    if not request.code_file:
        return ""
    path = site.home.snapshot(request.code_hash)
    source = Path(request.code_file)
    if site.here and path == source:
        return str(path)
    if not source.exists() and host.call("existing", paths=[str(path)]):
        return str(path)  # uploaded from another machine
    with translated(), source.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        stream.seek(0)
        reader = cast(BinaryIO, _ProgressReader(stream, source.stat().st_size, progress))
        host.put(reader, str(path), sha256=sha256)
    return str(path)


class _ProgressReader(io.RawIOBase):
    """A file that reports now and then how much of it has been read."""

    def __init__(self, stream: BinaryIO, size: int, progress: LaunchProgress | None) -> None:
        self._stream = stream
        self._size = size
        self._progress = progress if size > PROGRESS_MIN_BYTES else None
        self._reported_at = time.monotonic()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        if self._progress is not None and time.monotonic() > self._reported_at + PROGRESS_SECONDS:
            self._reported_at = time.monotonic()
            done, whole = self._stream.tell() / 1e6, self._size / 1e6
            self._progress(f"brings the code: {done:.0f} of {whole:.0f} MB", stage="preparing")
        return data
