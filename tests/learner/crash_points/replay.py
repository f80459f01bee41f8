"""Writes down what this process does to the files of a folder, and makes folders as a crash at any instant leaves them.

A process that is killed leaves all operations up to one, of which a write may be cut. A machine that loses its power
leaves less: of what was written to a file since its last ``fsync`` nothing is sure, and the last names that were given,
changed or removed may be as they were.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from unittest import mock

from workbench.learner.platform import system

LOSSES: Final = ("none", "cut", "all")
"""How much is lost of what was not synchronised: nothing, half of the last write, all."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One change: ``make``, ``write``, ``resize``, ``sync``, ``rename``, ``link`` or ``remove``."""

    name: str
    file: str
    offset: int = 0
    data: bytes = b""
    other: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.file} {self.other or self.offset} {self.data[:40]!r}"


@dataclass
class Inode:
    """A file's content, and what of it is on the disk for sure."""

    content: bytes = b""
    synchronised: bytes = b""
    since: list[Operation] = field(default_factory=list)

    def change(self, operation: Operation) -> None:
        self.content = _changed(self.content, operation)
        self.since.append(operation)

    def left(self, loss: str) -> bytes:
        """Return what a machine without power leaves of it."""
        writes = self.since
        if loss == "all":
            writes = []
        elif loss == "cut" and writes:
            last = writes[-1]
            writes = [*writes[:-1], replace(last, data=last.data[: len(last.data) // 2])]
        content = self.synchronised
        for operation in writes:
            content = _changed(content, operation)
        return content


def _changed(content: bytes, operation: Operation) -> bytes:
    at = operation.offset
    if operation.name == "resize":
        return content[:at].ljust(at, b"\0")
    return content[:at].ljust(at, b"\0") + operation.data + content[at + len(operation.data) :]


def left_by_kill(operations: Sequence[Operation]) -> dict[str, bytes]:
    """Return the files of a folder after operations."""
    names, _ = _done(operations)
    return {name: inode.content for name, inode in names.items()}


def left_by_power_loss(operations: Sequence[Operation]) -> Iterator[dict[str, bytes]]:
    """Yield the files that a machine may have after operations and a loss of its power."""
    for count in range(len(operations) + 1):
        if count < len(operations) and operations[count].name in ("write", "resize", "sync"):
            continue  # names are as before
        if any(each.name == "sync" for each in operations[count:]):
            continue  # who synchronises a file has its name on the disk, and what came before
        # Data that were written later belong to the same inodes.
        names, inodes = _done(operations[:count])
        _go_on(operations[count:], dict(names), inodes)
        for loss in LOSSES:
            yield {name: inode.left(loss) for name, inode in names.items()}


def _done(operations: Sequence[Operation]) -> tuple[dict[str, Inode], list[Inode]]:
    names: dict[str, Inode] = {}
    inodes: list[Inode] = []
    _go_on(operations, names, inodes)
    return names, inodes


def _go_on(operations: Sequence[Operation], names: dict[str, Inode], inodes: list[Inode]) -> None:
    for operation in operations:
        if operation.name == "make":
            inodes.append(Inode())
            names[operation.file] = inodes[-1]
        elif operation.name == "rename":
            names[operation.other] = names.pop(operation.file)
        elif operation.name == "link":
            names[operation.other] = names[operation.file]
        elif operation.name == "remove":
            del names[operation.file]
        elif operation.name == "sync":
            inode = names[operation.file]
            inode.synchronised, inode.since = inode.content, []
        else:
            names[operation.file].change(operation)


def written(files: dict[str, bytes], folder: Path) -> Path:
    """Write files into a new folder."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@contextmanager
def recorded(folder: Path) -> Iterator[list[Operation]]:
    """Write down what is done to the files of a folder from here on."""
    done: list[Operation] = []
    root = f"{folder}/"
    real = {name: getattr(os, name) for name in _WRAPPED}
    splice = system.splice

    def name_of(path: Any) -> str:
        found = os.fsdecode(path)
        return found.removeprefix(root) if found.startswith(root) else ""

    def file_of(descriptor: int) -> str:
        return name_of(Path(f"/proc/self/fd/{descriptor}").readlink())

    def note(name: str, file: str, offset: int = 0, data: Any = b"", other: str = "") -> None:
        if file:
            done.append(Operation(name, file, offset, bytes(data), other))

    def opened(path: Any, flags: int, *args: Any, **more: Any) -> int:
        name, is_there = name_of(path), os.path.lexists(path)
        descriptor: int = real["open"](path, flags, *args, **more)
        if flags & os.O_CREAT and not is_there:
            note("make", name)
        elif flags & os.O_TRUNC:
            note("resize", name)
        return descriptor

    def wrote(descriptor: int, data: Any) -> int:
        name = file_of(descriptor)
        at = os.lseek(descriptor, 0, os.SEEK_CUR) if name else 0
        count: int = real["write"](descriptor, data)
        note("write", name, at, memoryview(data)[:count])
        return count

    def pwrote(descriptor: int, data: Any, offset: int) -> int:
        count: int = real["pwrite"](descriptor, data, offset)
        note("write", file_of(descriptor), offset, memoryview(data)[:count])
        return count

    def resized(descriptor: int, size: int) -> None:
        real["ftruncate"](descriptor, size)
        note("resize", file_of(descriptor), size)

    def synchronised(descriptor: int) -> None:
        real["fsync"](descriptor)
        note("sync", file_of(descriptor))

    def named(name: str, kind: str) -> Callable[..., None]:
        def changed(path: Any, other: Any = "", **more: Any) -> None:
            real[name](*(path, other) if other else (path,), **more)
            note(kind, name_of(path), other=name_of(other))

        return changed

    def spliced(source: int, target: int, count: int) -> int:
        at = os.lseek(target, 0, os.SEEK_CUR)
        moved = splice(source, target, count)
        with Path(f"/proc/self/fd/{target}").open("rb") as file:
            note("write", file_of(target), at, os.pread(file.fileno(), moved, at))
        return moved

    with (
        mock.patch.multiple(
            os,
            open=opened,
            write=wrote,
            pwrite=pwrote,
            ftruncate=resized,
            fsync=synchronised,
            rename=named("rename", "rename"),
            replace=named("replace", "rename"),
            link=named("link", "link"),
            unlink=named("unlink", "remove"),
        ),
        mock.patch.object(system, "splice", spliced),
    ):
        yield done


_WRAPPED: Final = ("open", "write", "pwrite", "ftruncate", "fsync", "rename", "replace", "link", "unlink")
