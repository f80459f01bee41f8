"""Writes files that come as a tar stream: nothing outside of the target, nothing over what is there already."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, Final

from runners.shared.download import inside
from workbench.errors import BackendError, CannotWrite
from workbench.learner.platform.beneath import Root, copy_tree, relative
from workbench.learner.platform.chains import safe_links
from workbench.learner.platform.files import MOVING, put_folder, remove_put
from workbench.values import dataclass

_COPY_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Received:
    """What a stream held."""

    files: int = 0
    size_bytes: int = 0
    left_out: list[str] = field(default_factory=list)
    """Links that would lead out of the folder, and what is neither file nor folder."""


def receive_file(stream: BinaryIO, target: BinaryIO) -> Received:
    """Write the one file of a stream.

    Raises:
        BackendError: it is none.
    """
    received = Received()
    with tarfile.open(fileobj=stream, mode="r|", bufsize=_COPY_BYTES) as tar:
        member = tar.next()
        content = tar.extractfile(member) if member is not None and member.isreg() else None
        if member is None or content is None:
            raise BackendError("the file no longer exists, or is not a file")
        shutil.copyfileobj(content, target, _COPY_BYTES)
        received.files, received.size_bytes = 1, member.size
    return received


def receive_folder(stream: BinaryIO, folder: Path) -> Received:
    """Write all of a stream into a folder that is empty.

    Raises:
        BackendError: the stream names something outside of the folder.
    """
    received = Received()
    links: dict[str, str] = {}
    with tarfile.open(fileobj=stream, mode="r|", bufsize=_COPY_BYTES) as tar:
        for member in tar:
            if member.name == ".":
                continue
            path = inside(folder, member.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            content = tar.extractfile(member) if member.isreg() else None
            if content is not None:
                with path.open("wb") as file:
                    shutil.copyfileobj(content, file, _COPY_BYTES)
                path.chmod(member.mode & 0o777 | 0o600)
                received.files += 1
                received.size_bytes += member.size
            elif member.isdir():
                path.mkdir(exist_ok=True)
            elif member.issym():
                links[path.relative_to(folder).as_posix()] = member.linkname
            else:
                received.left_out.append(member.name)
    # Last, so that nothing was written through one; and not where something else has come by the same name.
    made = {name for name in safe_links(links, {}) if not os.path.lexists(folder / name)}
    for name in sorted(made):
        (folder / name).symlink_to(links[name])
    received.left_out += sorted(links.keys() - made)
    return received


def write_folder(target: Path, write: Callable[[Path], object], *, force: bool, resume_key: str = "") -> Path:
    """Write a folder next to ``target``, and move it there when it is whole.

    Args:
        target: Where it goes.
        write: Fills the folder that it is given, which is empty unless an interrupted call is resumed.
        force: Replace what is there.
        resume_key: What an interrupted call has written stays, and the next call with the same key resumes it;
            empty: nothing stays.

    Raises:
        CannotWrite: something is there already, or the disk takes no more; nothing is left half-made, and what was
            there stays.
    """
    if _exists(target) and not force:
        raise CannotWrite(f"{target} already exists", hint="--force replaces it; --to names another folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = _partial_folder(target, resume_key)
    except OSError as error:
        raise CannotWrite(f"cannot write {target}: {error.strerror}") from error
    is_whole = False
    new, old = partial / "new", partial / "old"
    try:
        new.mkdir(exist_ok=bool(resume_key))
        write(new)
        _replace(target, new, old)
        is_whole = True
    except OSError as error:
        kept = f"; what was there is in {old}" if os.path.lexists(old) else ""
        raise CannotWrite(f"cannot write {target}: {error.strerror or error}{kept}") from error
    finally:
        if is_whole or not (os.path.lexists(old) or (resume_key and any(new.glob("*")))):
            shutil.rmtree(partial, ignore_errors=True)
    return target


def _partial_folder(target: Path, resume_key: str) -> Path:
    if not resume_key:
        return Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    partial = target.parent / f".{target.name}.{resume_key}"
    partial.mkdir(mode=0o700, exist_ok=True)
    return partial


def copy_into(
    source: Path,
    target: Path,
    include: Sequence[str] = (),
    within: Path | None = None,
    check_stop: Callable[[], None] | None = None,
) -> None:
    """Copy what a folder holds, or the files of it that fit a pattern, into another one; links stay links.

    A job may change the folder meanwhile: no link in it, or on the way to it from ``within``, leads out of that.
    ``check_stop`` is called before each file; what it raises ends the copy.
    """
    root = within or source
    matches = (lambda name: fits(name, include)) if include else None
    # The roots themselves are out of every job's reach.
    with Root(str(root), follow=True) as theirs, Root(str(target), follow=True) as ours:
        copy_tree(theirs, relative(str(source), str(root)), ours, include=matches, check_stop=check_stop)


def has_some(folder: Path, within: Path | None = None) -> bool:
    """Say whether a folder that a job may change is there, and holds anything."""
    above = str(within or folder)
    try:
        with Root(above, follow=True) as root:
            return any(names or folders for _, _, folders, names in root.walk(relative(str(folder), above)))
    except OSError:
        return False


def fits(name: str, patterns: Sequence[str]) -> bool:
    """Say whether a file's path below its folder, or its last part, fits one of some patterns."""
    return any(
        fnmatchcase(name, pattern) or fnmatchcase(name.rpartition("/")[2], pattern) for pattern in patterns
    )


def _replace(target: Path, new: Path, old: Path) -> None:
    """Put a folder in the place of what is there, or leave that where it is, however this ends."""
    try:
        if _exists(target):
            target.rename(old)
        put_folder(str(new), str(target))
    except BaseException:
        if os.path.lexists(old):
            if not os.path.lexists(new) or os.path.lexists(f"{target}{MOVING}"):
                remove_put(str(target))  # all or some of it came from here: it is not somebody else's
            old.rename(target)
        raise


def _exists(target: Path) -> bool:
    if target.is_dir() and not target.is_symlink():
        return any(target.iterdir())
    return os.path.lexists(target)
