"""Snapshots of code: a folder, zip or tar becomes a content-addressed ``tar.gz``, packed only when it is new.

A snapshot holds regular files, folders and symbolic links that stay inside, nothing else; the same content
has the same name, and the same bytes, on every machine.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from workbench.data.code.bounds import UNBOUNDED, USUAL, Bounds, CodeExcess, excess, megabytes, too_much
from workbench.data.code.folder_guard import check_chosen
from workbench.data.code.ignore import rules_of, rules_of_archive, rules_of_experiment
from workbench.data.code.scan import ChangedMeanwhile, Progress, Scan, ScanOptions, scan_folder
from workbench.data.code.scan_cache import FileFacts, ScanCache, load_cache, save_cache
from workbench.errors import CannotWrite, InputMissing, TryAgain
from workbench.paths import Home, make_private_folder

LARGE_BYTES: Final = 100_000_000
"""Above it the largest files are named: most often one of them was never meant to be sent."""

_LARGEST_NAMED: Final = 5
_NAMED_MAX: Final = 8
_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A job's code at one moment."""

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


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """What a snapshot leaves out, its limits, and where it is put."""

    never: tuple[Path, ...] = ()
    """Files of a folder that are left out whatever they hold."""
    anyway: bool = False
    """Whether the code is taken though it is a home folder, a file system's root, or more than the bounds."""
    is_of_determined: bool = False
    """Whether what Determined leaves out of the code of its experiments is left out."""
    bounds: Bounds = USUAL
    agree: Callable[[CodeExcess], bool] = lambda _: False
    """Asks a person whether more than the bounds may be taken."""
    progress: Progress = lambda *_: None
    scratch: Path | None = None
    """A folder for a snapshot that is only previewed, so that the home is not changed; None puts it into the home."""

    def options(self, home: Home) -> ScanOptions:
        """Return the options of the scan."""
        bounds = UNBOUNDED if self.anyway else self.bounds
        return ScanOptions(
            (home.path, *self.never),
            rules=rules_of_experiment if self.is_of_determined else rules_of,
            bounds=bounds,
            agree=self.agree,
            progress=self.progress,
        )

    def output_home(self, home: Home) -> Home:
        """Return the home that snapshots and caches are written to."""
        return home if self.scratch is None else Home(self.scratch)


def take_snapshot(source: Path, home: Home, options: SnapshotOptions = SnapshotOptions()) -> Snapshot:
    """Take a snapshot of a folder, a zip or a tar.

    Raises:
        UsageError: it is nothing that is taken as code, or not unasked.
        InputMissing: it is not there, cannot be read, is not code, or leads out of itself.
        TryAgain: its files change while they are read.
        CannotWrite: the home takes no more.
    """
    source = Path(os.path.abspath(source))  # noqa: PTH100 - links stay as named, only dots and slashes go
    try:
        if source.is_dir():
            check_chosen(source, home, anyway=options.anyway)
        elif not source.exists():
            raise InputMissing(f"the code {source} is not there", hint="name a folder, a zip or a tar")
        elif not source.is_file():
            # A pipe would be waited for, and read once at most.
            raise InputMissing(
                f"{source} is neither a folder nor a file", hint="name a folder, a zip or a tar"
            )
        output = options.output_home(home)
        _make_folder(output.path)
        _make_folder(output.code)
        return (
            _snap_folder(source, home, options) if source.is_dir() else _snap_archive(source, home, options)
        )
    except RecursionError:
        raise InputMissing(f"the folders of {source} are nested too deep") from None
    except OSError as error:
        raise InputMissing(f"the code {source} cannot be read: {error.strerror or error}") from error


def snapshot_file(code_hash: str, home: Home, scratch: Path | None = None) -> Path:
    """Return where the snapshot of that content lies, in the home or where it was put to be looked at."""
    file = home.snapshot(code_hash)
    return file if scratch is None or file.exists() else Home(scratch).snapshot(code_hash)


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
        make_private_folder(folder)
    except OSError as error:
        raise CannotWrite(f"{folder} cannot be made: {error.strerror}") from error


def _memory_of(source: Path, home: Home) -> Path:
    key = hashlib.sha256(os.fsencode(source)).hexdigest()[:32]
    return home.scan(key)


def _last_cache(source: Path, home: Home, options: SnapshotOptions) -> ScanCache:
    memory = _memory_of(source, options.output_home(home))
    return load_cache(memory if memory.exists() else _memory_of(source, home))


def _snap_folder(source: Path, home: Home, options: SnapshotOptions) -> Snapshot:
    memory = _memory_of(source, options.output_home(home))
    before = _last_cache(source, home, options)
    for _ in range(_TRIES):
        with suppress(ChangedMeanwhile):
            scan = scan_folder(source, before, options.options(home))
            if scan.remembered != before:
                save_cache(memory, scan.remembered)
            return _packed(source, scan, home, options)
        # The cache was wrong or a file is being written: scan again without the cache.
        memory.unlink(missing_ok=True)
        before = ScanCache()
    raise TryAgain(f"the code in {source} changes while it is read", hint="try again when it is at rest")


def _snap_archive(source: Path, home: Home, options: SnapshotOptions) -> Snapshot:
    facts, scanned_at_ns = FileFacts.of(source.stat()), time.time_ns()
    known = _last_cache(source, home, options).archive
    if known.get("facts") == list(facts):
        file = snapshot_file(known["code_hash"], home, options.scratch)
        if file.exists():
            return _recalled(known, file, options)
    # An unchanged folder does without all of these.
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(dir=options.output_home(home).code, prefix=".unpacking-"))
    try:
        snapshot = _snap_unpacked(source, folder / "code", home, options)
    except ChangedMeanwhile:
        raise TryAgain(f"what {source} was unpacked to changed while it was read", hint="try again") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if facts.settled(scanned_at_ns) and facts == FileFacts.of(source.stat()):
        memory = _memory_of(source, options.output_home(home))
        save_cache(memory, ScanCache(archive={"facts": list(facts), **asdict(snapshot)}))
    return snapshot


def _snap_unpacked(source: Path, folder: Path, home: Home, options: SnapshotOptions) -> Snapshot:
    from workbench.data.code.archives import extract

    def check(sizes: Iterable[tuple[str, int]]) -> None:
        found = excess(source, sizes, UNBOUNDED if options.anyway else options.bounds)
        if found is not None and not options.agree(found):
            raise too_much(found)

    # What a home holds as code has been looked at before, with whatever its owner wanted in it.
    ours = source.parent == home.code
    skipped = extract(source, folder, None if ours else check)
    scan = scan_folder(
        folder,
        ScanCache(),
        ScanOptions(
            rules=rules_of_archive, moves_environments=True, takes_keys=ours, progress=options.progress
        ),
    )
    scan.skipped += skipped
    return _packed(folder, scan, home, options)


def _recalled(known: Mapping[str, Any], file: Path, options: SnapshotOptions) -> Snapshot:
    if options.scratch is None:
        _touch(file)
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


def _packed(folder: Path, scan: Scan, home: Home, options: SnapshotOptions) -> Snapshot:
    """Return the snapshot of what a scan found.

    Raises:
        ChangedMeanwhile: it is no longer so.
    """
    code_hash = scan.code_hash()
    target = snapshot_file(code_hash, home, options.scratch)
    cached = target.exists()
    if cached and options.scratch is None:
        _touch(target)
    elif not cached:
        # Loads tar and gzip, which what is packed already does without.
        from workbench.data.code.pack import pack

        pack(folder, scan.entries, target, options.progress, whole=options.scratch is None)
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
        excluded=(*scan.excluded, *scan.keys, *scan.homes),
        largest=tuple(largest) if size > LARGE_BYTES else (),
        cached=cached,
        warnings=tuple(_warnings(scan, size, largest)),
    )


def _warnings(scan: Scan, size: int, largest: list[tuple[str, int]]) -> list[str]:
    warnings = []
    if scan.keys:
        warnings.append(
            f"left out of the code as keys or credentials: {_named(scan.keys)};"
            f" `!{_name(scan.keys[0])}` in .fabricignore takes it along, `{_name(scan.keys[0])}` there ends this"
            " warning"
        )
    if scan.homes:
        warnings.append(f"left out of the code as a home of fabric: {_named(scan.homes)}")
    if size > LARGE_BYTES:
        named = ", ".join(f"{path} ({megabytes(length)})" for path, length in largest)
        warnings.append(
            f"the code is {megabytes(size)}; its largest files are {named};"
            " what a learner does not need can be named in .fabricignore"
        )
    if scan.skipped:
        named = _named(scan.skipped)
        warnings.append(f"left out, since they are neither files nor folders nor links: {named}")
    return warnings


def _named(paths: list[str]) -> str:
    more = f" and {len(paths) - _NAMED_MAX} more" if len(paths) > _NAMED_MAX else ""
    return ", ".join(paths[:_NAMED_MAX]) + more


def _name(path: str) -> str:
    """Return how a path is written in ``.fabricignore``: from there on, whatever has the same name elsewhere."""
    return f"/{path}" if "/" in path.rstrip("/") else path
