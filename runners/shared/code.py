"""Brings a job's code to a host by content, and into the folders of its learners."""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from backends.contract.errors import translated
from backends.contract.host import Host
from runners.interface import LaunchProgress, LaunchRequest
from runners.shared.host_facts import HostFacts
from workbench import formats
from workbench.data.code.pack import PackedMember, listing_of, read_listing
from workbench.errors import TryAgain

PROGRESS_MIN_BYTES: Final = 2_000_000
PROGRESS_SECONDS: Final = 0.5
_CHUNK_BYTES: Final = 1 << 20
KEEP_SECONDS: Final = 14 * 86400.0


def deploy_code(
    host: Host,
    site: HostFacts,
    request: LaunchRequest,
    folders: Sequence[str],
    progress: LaunchProgress | None = None,
) -> None:
    """Make folders with a job's code in each; the host is sent only the contents that it does not have."""
    if not request.code_file or site.here or not site.python or _is_sent_whole(Path(request.code_file)):
        _unpack(host, upload_code(host, site, request, progress), folders)
    else:
        _deploy_by_content(host, site, request, folders, progress)
    if request.code_file and not site.here and site.python:
        host.call("expire_code_sometimes", **folders_of(site), older_than_seconds=keep_seconds(host))


def folders_of(site: HostFacts) -> dict[str, str]:
    """Return the folders of a home at a host in which code lies."""
    return {"store": str(site.home.code), "jobs": str(site.home.jobs)}


def keep_seconds(host: Host) -> float:
    """Return how long a host keeps code that no job uses."""
    return float(getattr(host, "keep_code_seconds", KEEP_SECONDS))


def _is_sent_whole(pack: Path) -> bool:
    """Return whether code is sent as one archive: small code, or an older version's, has no listing of its parts."""
    return pack.exists() and not listing_of(pack).exists()


def _deploy_by_content(
    host: Host,
    site: HostFacts,
    request: LaunchRequest,
    folders: Sequence[str],
    progress: LaunchProgress | None,
) -> None:
    store = str(site.home.code)
    code: dict[str, Any] = {"store": store, "code_hash": request.code_hash}
    if host.call("copy_code", **code, folders=list(folders)):
        return
    members = read_listing(Path(request.code_file))
    if not members:  # packed by an older version, or uploaded from another machine by one
        _unpack(host, upload_code(host, site, request, progress), folders)
        return
    entries = [entry for member in members for entry in member.entries]
    with translated():
        part = _send_missing(host, store, members, progress)
    host.call("keep_code", **code, entries=[entry.values() for entry in entries], part=part)
    if not host.call("copy_code", **code, folders=list(folders)):
        raise TryAgain(f"The code at {site.name} was removed while it was used.")


def _unpack(host: Host, archive: str, folders: Sequence[str]) -> None:
    for folder in folders:
        host.call("unpack", archive=archive, folder=folder)


def _send_missing(
    host: Host, store: str, members: Sequence[PackedMember], progress: LaunchProgress | None
) -> str:
    """Send those members of a pack of which a content is missing at the host; return the path of the archive there."""
    digests = sorted({entry.digest for member in members for entry in member.entries if entry.kind == "file"})
    missing = {digests[position] for position in host.call("find_missing_code", store=store, digests=digests)}
    sent = [member for member in members if any(entry.digest in missing for entry in member.entries)]
    if not sent:
        return ""
    with sent[0].pack.open("rb") as pack:
        part = _Slices(pack, [(member.offset, member.size_bytes) for member in sent])
        digest = hashlib.sha256()
        while data := part.read(_CHUNK_BYTES):
            digest.update(data)
        part.seek(0)
        path = f"{store}/parts/{digest.hexdigest()}.tar.gz"
        reader = cast(BinaryIO, ProgressReader(part, part.size_bytes, progress))
        host.put(reader, path, sha256=digest.hexdigest())
    return path


def upload_code(
    host: Host, site: HostFacts, request: LaunchRequest, progress: LaunchProgress | None = None
) -> str:
    """Upload a job's snapshot whole unless the host has it; return its path there, empty for a job without code."""
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
        reader = cast(BinaryIO, ProgressReader(stream, source.stat().st_size, progress))
        host.put(reader, str(path), sha256=sha256)
    return str(path)


class _Slices(io.RawIOBase):
    """Slices of a file, one after another, as a stream.

    Args:
        stream: the file.
        slices: offset and size of each.
    """

    def __init__(self, stream: BinaryIO, slices: Sequence[tuple[int, int]]) -> None:
        self._stream = stream
        self._slices = slices
        self._at = 0
        self.size_bytes = sum(size for _, size in slices)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self.size_bytes)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        start = 0
        for offset, length in self._slices:
            inside = self._at - start
            if inside < length:
                self._stream.seek(offset + inside)
                left = length - inside
                data = self._stream.read(left if size < 0 else min(size, left))
                self._at += len(data)
                return data
            start += length
        return b""


class ProgressReader(io.RawIOBase):
    """A file that reports now and then how much of it has been read; a launch that is called off ends by that.

    Args:
        stream: the file.
        size: its size in bytes.
        progress: gets the reports.
        what: what they say.
    """

    def __init__(
        self,
        stream: BinaryIO | _Slices,
        size: int,
        progress: LaunchProgress | None,
        what: str = "downloading code",
    ) -> None:
        self._stream = stream
        self._size = size
        self._what = what
        self._progress = progress if size > PROGRESS_MIN_BYTES else None
        self._reported_at = time.monotonic()

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Continue at an offset."""
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        """Return the offset."""
        return self._stream.tell()

    def read(self, size: int = -1) -> bytes:
        """Read some bytes, and report when that is due."""
        data = self._stream.read(size)
        if self._progress is not None and time.monotonic() > self._reported_at + PROGRESS_SECONDS:
            self._reported_at = time.monotonic()
            done, whole = formats.size(self._stream.tell()), formats.size(self._size)
            self._progress(f"{self._what}: {done} of {whole}", stage="preparing")
        return data
