"""Packs a tree into a ``tar.gz`` whose bytes depend on nothing but its content, whole or not at all."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tarfile
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from workbench.data.code.scan import ChangedMeanwhile, CodeEntry, Progress
from workbench.errors import CannotWrite
from workbench.learner.platform.beneath import Root
from workbench.paths import write_private
from workbench.values import dataclass

_LEVEL: Final = 4
"""Of compression: source code gains little by more, and large files cost time."""


PREVIEW_BYTES: Final = 20_000_000
PREVIEW_PACKED_BYTES: Final = 4_000_000
"""A preview of what would be started packs no more than this."""


MEMBER_BYTES: Final = 1 << 20
"""A file of this size is a gzip member of its own, so that it can be taken over, or sent, alone."""

LISTED_BYTES: Final = 1 << 18
"""A smaller pack is made and sent whole: that takes no longer than to ask a host what is missing there."""

LISTING_FORMAT: Final = 1
_COPY_BYTES: Final = 1 << 20
_TRIED_BYTES: Final = 1 << 16
_GAIN: Final = 0.95
_EARLIER_PACKS: Final = 3
"""How many of the newest packs are searched for members that need not be made again."""


@dataclass(frozen=True, slots=True)
class PackedMember:
    """A gzip member of a pack: a part of the archive that can be read alone."""

    pack: Path
    offset: int
    size_bytes: int
    entries: tuple[CodeEntry, ...]


def listing_of(pack: Path) -> Path:
    """Return the path of a pack's listing: what its members hold."""
    return pack.with_name(f"{pack.name.removesuffix('.tar.gz')}.json")


def read_listing(pack: Path) -> list[PackedMember]:
    """Return the members of a pack; none without a listing, as older versions left it."""
    try:
        document = json.loads(listing_of(pack).read_bytes())
        if document["format"] != LISTING_FORMAT:
            return []
        return [
            PackedMember(pack, offset, size, tuple(CodeEntry(*entry) for entry in entries))
            for offset, size, entries in document["members"]
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def remove_pack(pack: Path) -> None:
    """Remove a pack and its listing."""
    pack.unlink(missing_ok=True)
    listing_of(pack).unlink(missing_ok=True)


def _earlier_members(folder: Path) -> dict[tuple[CodeEntry, ...], PackedMember]:
    """Return the members of the newest packs by what they hold."""
    listings = sorted(folder.glob("*.json"), key=_changed_at, reverse=True)[:_EARLIER_PACKS]
    packs = (listing.with_name(f"{listing.stem}.tar.gz") for listing in listings)
    return {member.entries: member for pack in packs for member in read_listing(pack)}


def _changed_at(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _write_listing(pack: Path, members: Sequence[PackedMember]) -> None:
    """Write what the members hold; without it the pack is sent whole."""
    listed = [
        [member.offset, member.size_bytes, [entry.values() for entry in member.entries]] for member in members
    ]
    file = listing_of(pack)
    temporary = file.with_name(f".{file.name}.{os.getpid()}-{threading.get_ident()}")
    with suppress(OSError):
        document = {"format": LISTING_FORMAT, "members": listed}
        write_private(temporary, json.dumps(document, separators=(",", ":")))
        temporary.replace(file)


class _Enough(Exception):
    """The preview is complete."""


class _Checked:
    """A file that is hashed while it is packed."""

    def __init__(self, stream: IO[bytes], progress: Callable[[int], None]) -> None:
        self._stream = stream
        self._progress = progress
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Read on."""
        data = self._stream.read(size)
        self.digest.update(data)
        self._progress(len(data))
        return data


def pack(
    folder: Path, entries: Sequence[CodeEntry], target: Path, progress: Progress, *, whole: bool = True
) -> None:
    """Pack these entries of a folder; ``whole`` False packs no more than a preview needs.

    Raises:
        ChangedMeanwhile: a file is not what the entry says any more; nothing is written then.
        CannotWrite: the target cannot be written.
    """
    total = sum(entry.size for entry in entries)
    done = 0

    def progress_of(size: int) -> None:
        nonlocal done
        done += size
        progress("pack", done, total)

    def cut(size: int) -> None:
        progress_of(size)
        if done > PREVIEW_BYTES and stream.tell() > PREVIEW_PACKED_BYTES:
            raise _Enough

    try:
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=".packing-")
    except OSError as error:
        raise CannotWrite(f"{target.parent} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as stream:
            members: list[PackedMember] = []
            with suppress(_Enough):
                known = _earlier_members(target.parent) if whole else {}
                with Root(str(folder), follow=True) as root:
                    members = _write(root, entries, stream, progress_of if whole else cut, known)
            stream.truncate()
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(target)
        if whole and target.stat().st_size > LISTED_BYTES:
            _write_listing(target, members)
    except OSError as error:
        raise CannotWrite(f"the code cannot be packed into {target.parent}: {error.strerror}") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def _write(
    root: Root,
    entries: Sequence[CodeEntry],
    stream: IO[bytes],
    progress: Callable[[int], None],
    known: Mapping[tuple[CodeEntry, ...], PackedMember],
) -> list[PackedMember]:
    """Write one gzip member after another; those that an earlier pack has are copied from it."""
    written: list[PackedMember] = []
    for group in _groups(sorted(entries, key=lambda found: os.fsencode(found.path))):
        offset, before = stream.tell(), known.get(tuple(group))
        if before is None or not _copy(before, stream):
            stream.seek(offset)
            _write_member(root, group, stream, progress)
        else:
            progress(sum(entry.size for entry in group))
        written.append(PackedMember(Path(), offset, stream.tell() - offset, tuple(group)))
    with gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=stream, mtime=0) as packed:
        packed.write(bytes(tarfile.RECORDSIZE))
    return written


def _groups(entries: Sequence[CodeEntry]) -> Iterator[list[CodeEntry]]:
    """Part entries so that each large file is alone, and small ones are together."""
    group: list[CodeEntry] = []
    size = 0
    for entry in entries:
        if group and size + entry.size > MEMBER_BYTES:
            yield group
            group, size = [], 0
        group.append(entry)
        size += entry.size
    if group:
        yield group


def _write_member(
    root: Root, entries: Sequence[CodeEntry], stream: IO[bytes], progress: Callable[[int], None]
) -> None:
    level = _level_of(root, entries)
    with gzip.GzipFile(filename="", mode="wb", compresslevel=level, fileobj=stream, mtime=0) as packed:
        archive = tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT)  # noqa: SIM115
        for entry in entries:
            _add(archive, root, entry, progress)
        # It is not closed: that would end the archive, and more members follow.


def _level_of(root: Root, entries: Sequence[CodeEntry]) -> int:
    """Return how well to compress: a large file whose beginning gains nothing is stored as it is."""
    largest = max(entries, key=lambda entry: entry.size)
    if largest.size < MEMBER_BYTES:
        return _LEVEL
    try:
        beginning = root.read(largest.path, _TRIED_BYTES)
    except OSError:
        return _LEVEL  # whoever packs it finds out
    return 0 if len(zlib.compress(beginning, 1)) > _GAIN * len(beginning) else _LEVEL


def _copy(member: PackedMember, stream: IO[bytes]) -> bool:
    """Copy a member of an earlier pack; False where that is not whole any more."""
    left = member.size_bytes
    try:
        with member.pack.open("rb") as source:
            source.seek(member.offset)
            while left and (data := source.read(min(left, _COPY_BYTES))):
                stream.write(data)
                left -= len(data)
    except OSError:
        return False
    return not left


def _add(archive: tarfile.TarFile, root: Root, entry: CodeEntry, progress: Callable[[int], None]) -> None:
    info = tarfile.TarInfo(entry.path)
    info.mode = 0o755 if entry.executable or entry.kind == "folder" else 0o644
    if entry.kind == "folder":
        info.type = tarfile.DIRTYPE
    elif entry.kind == "link":
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.target, 0o777
    if entry.kind != "file":
        archive.addfile(info)
        return
    info.size = entry.size
    try:
        stream = os.fdopen(root.open_file(entry.path, follow=False), "rb")
    except OSError as error:
        raise ChangedMeanwhile(entry.path) from error
    with stream:
        checked = _Checked(stream, progress)
        try:
            archive.addfile(info, checked)
        except OSError as error:
            # tarfile's own message for a file that is shorter than it was; a full disk has a number.
            if error.errno is None:
                raise ChangedMeanwhile(entry.path) from error
            raise
        if stream.read(1) or checked.digest.hexdigest() != entry.digest:
            raise ChangedMeanwhile(entry.path)
