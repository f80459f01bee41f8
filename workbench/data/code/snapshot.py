"""Snapshots of code: a folder, zip or tar becomes a content-addressed ``tar.gz``, packed only when it is new.

A snapshot holds regular files, folders and symbolic links that stay inside, nothing else; the same content
has the same name, and the same bytes, on every machine.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from workbench.data.code.scan import Scan, scan_folder
from workbench.data.code.scan_cache import FileFacts, Remembered, recall, remember
from workbench.errors import CannotWrite, InputMissing, TryAgain
from workbench.paths import Home

LARGE_BYTES: Final = 100_000_000
"""Above it the largest files are named: most often one of them was never meant to be sent."""

_LARGEST_NAMED: Final = 5
_TRIES: Final = 3

Progress = Callable[[int, int], None]
"""Told how many bytes of how many are packed."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A job's code as it was."""

    code_hash: str
    """Over names, kinds, the executable bit and contents; ``home.snapshot(code_hash)`` is the file."""
    size_bytes: int
    """Of the contents, unpacked."""
    files: int
    """How many files and links."""
    excluded: tuple[str, ...]
    """What was left out, folders with a slash at their end."""
    largest: tuple[tuple[str, int], ...]
    """The largest files with their sizes; empty below 100 MB."""
    cached: bool
    """Whether the snapshot was there already."""
    warnings: tuple[str, ...]


def snap(
    source: Path, home: Home, progress: Progress | None = None, *, never: Sequence[Path] = ()
) -> Snapshot:
    """Take a snapshot of a folder, a zip or a tar; files of a folder that are named in ``never`` are left out.

    Raises:
        InputMissing: it is not there, cannot be read, is no code, or leads out of itself.
        TryAgain: its files change while they are read.
        CannotWrite: the home takes no more.
    """
    source = Path(os.path.abspath(source))  # noqa: PTH100 - links stay as named, only dots and slashes go
    _make_folder(home.path)
    _make_folder(home.code)
    try:
        if source.is_dir():
            return _snap_folder(source, home, progress, never)
        if not source.exists():
            raise InputMissing(f"the code {source} is not there", hint="name a folder, a zip or a tar")
        return _snap_archive(source, home, progress)
    except RecursionError:
        raise InputMissing(f"the folders of {source} are nested too deep") from None
    except OSError as error:
        raise InputMissing(f"the code {source} cannot be read: {error.strerror or error}") from error


def unpack(snapshot: Path, folder: Path) -> None:
    """Unpack a snapshot into a folder that is not there yet.

    Raises:
        InputMissing: it is not there or damaged.
        CannotWrite: the folder takes no more.
    """
    # Loads zip and tar, which packing what is there already does without.
    from workbench.data.code.archives import extract

    extract(snapshot, folder)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise CannotWrite(f"{folder} cannot be made: {error.strerror}") from error


def _memory_of(source: Path, home: Home) -> Path:
    key = hashlib.sha256(os.fsencode(source)).hexdigest()[:32]
    return home.scan(key)


def _snap_folder(source: Path, home: Home, progress: Progress | None, never: Sequence[Path]) -> Snapshot:
    memory = _memory_of(source, home)
    for _ in range(_TRIES):
        before = recall(memory)
        scan = scan_folder(source, before, never=(home.path, *never))
        if scan.remembered != before:
            remember(memory, scan.remembered)
        if (snapshot := _packed(source, scan, home, progress)) is not None:
            return snapshot
        # The cheap look was wrong or a file is being written: look at everything again.
        memory.unlink(missing_ok=True)
    raise TryAgain(f"the code in {source} changes while it is read", hint="try again when it is at rest")


def _snap_archive(source: Path, home: Home, progress: Progress | None) -> Snapshot:
    memory = _memory_of(source, home)
    facts, looked_at_ns = FileFacts.of(source.stat()), time.time_ns()
    known = recall(memory).archive
    if known.get("facts") == list(facts) and home.snapshot(known["code_hash"]).exists():
        return _recalled(known, home)
    # An unchanged folder does without all of these.
    import shutil
    import tempfile

    from workbench.data.code.archives import extract

    folder = Path(tempfile.mkdtemp(dir=home.code, prefix=".unpacking-"))
    try:
        skipped = extract(source, folder / "code")
        scan = scan_folder(folder / "code", Remembered(), ignores=False)
        scan.skipped += skipped
        snapshot = _packed(folder / "code", scan, home, progress)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if snapshot is None:
        raise TryAgain(f"what {source} was unpacked to changed while it was read", hint="try again")
    if facts.settled(looked_at_ns) and facts == FileFacts.of(source.stat()):
        remember(memory, Remembered(archive={"facts": list(facts), **asdict(snapshot)}))
    return snapshot


def _recalled(known: Mapping[str, Any], home: Home) -> Snapshot:
    _touch(home.snapshot(known["code_hash"]))
    return Snapshot(
        code_hash=known["code_hash"],
        size_bytes=known["size_bytes"],
        files=known["files"],
        excluded=tuple(known["excluded"]),
        largest=tuple((path, size) for path, size in known["largest"]),
        cached=True,
        warnings=tuple(known["warnings"]),
    )


def _touch(snapshot: Path) -> None:
    # What is used is not what gc takes away for its age.
    with suppress(OSError):
        os.utime(snapshot)


def _packed(folder: Path, scan: Scan, home: Home, progress: Progress | None) -> Snapshot | None:
    """Return the snapshot of what a look found; None when it is no longer so."""
    code_hash = scan.code_hash()
    target = home.snapshot(code_hash)
    cached = target.exists()
    if cached:
        _touch(target)
    else:
        # Loads tar and gzip, which what is packed already does without.
        from workbench.data.code.pack import ChangedMeanwhile, pack

        try:
            pack(folder, scan.entries, target, progress)
        except ChangedMeanwhile:
            return None
    return _described(scan, code_hash, cached)


def _described(scan: Scan, code_hash: str, cached: bool) -> Snapshot:
    files = [entry for entry in scan.entries if entry.kind == "file"]
    size = sum(entry.size for entry in files)
    largest = sorted(((entry.path, entry.size) for entry in files), key=lambda pair: -pair[1])[
        :_LARGEST_NAMED
    ]
    return Snapshot(
        code_hash=code_hash,
        size_bytes=size,
        files=sum(entry.kind != "folder" for entry in scan.entries),
        excluded=tuple(scan.excluded),
        largest=tuple(largest) if size > LARGE_BYTES else (),
        cached=cached,
        warnings=tuple(_warnings(scan, size, largest)),
    )


def _warnings(scan: Scan, size: int, largest: list[tuple[str, int]]) -> list[str]:
    said = []
    if size > LARGE_BYTES:
        named = ", ".join(f"{path} ({_megabytes(length)})" for path, length in largest)
        said.append(
            f"the code is {_megabytes(size)}; its largest files are {named};"
            " what a learner does not need can be named in .fabricignore"
        )
    if scan.skipped:
        more = f" and {len(scan.skipped) - _LARGEST_NAMED} more" if len(scan.skipped) > _LARGEST_NAMED else ""
        named = ", ".join(scan.skipped[:_LARGEST_NAMED])
        said.append(f"left out, since they are neither files nor folders nor links: {named}{more}")
    return said


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:,.0f} MB"
