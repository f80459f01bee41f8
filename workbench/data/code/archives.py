"""Unpacks zips and tars: nothing is written outside the folder, and nothing at all when anything is wrong."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from workbench.errors import CannotWrite, InputMissing
from workbench.learner.platform.chains import leading_out, through_links
from workbench.values import dataclass

_COPY_BYTES: Final = 1 << 20
_MEMBERS_MAX: Final = 1_000_000
_TARGET_BYTES_MAX: Final = 4096
_NAMED_MAX: Final = 5
_BROKEN: Final = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an archive, whichever kind of archive it is."""

    name: str
    """As the archive has it."""
    kind: str
    """``file``, ``folder``, ``link``, ``copy`` (a tar's hard link) or ``special``."""
    size: int = 0
    executable: bool = False
    target: str = ""
    open: Callable[[], IO[bytes] | None] = lambda: None
    has_modes: bool = True
    """False where the archive knows nothing of who may execute."""


def extract(
    archive: Path, folder: Path, check: Callable[[Iterable[tuple[str, int]]], None] | None = None
) -> list[str]:
    """Unpack a zip or tar into a folder that is not there yet; returns what was left out (devices, pipes).

    ``check`` is given the paths and sizes of all files before anything is written, and raises what forbids it.

    Raises:
        InputMissing: it is not an archive, it is damaged, or a member would leave the folder; nothing is left
            of it then.
        CannotWrite: the disk takes no more.
    """
    with _opened(archive) as members:
        listed = list(members)
        _refuse_escapes(archive, listed)
        if check is not None:
            files = (member for member in listed if member.kind == "file" and not _is_of_git(member))
            check((member.name, member.size) for member in files)
        _refuse_too_large(archive, listed, folder.parent)
        try:
            folder.mkdir(mode=0o700)
            return _write_all(archive, listed, folder)
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, _BROKEN):
                raise InputMissing(f"{archive} is damaged: {error}") from error
            if isinstance(error, OSError):
                raise CannotWrite(f"{archive} cannot be unpacked: {error.strerror}") from error
            raise


def has_file(archive: Path, path: str) -> bool:
    """Say whether an archive holds a file at this path.

    Raises:
        InputMissing: it is not an archive, or damaged.
    """
    wanted = _normal(path)
    with _opened(archive) as members:
        return any(member.kind != "folder" and _normal(member.name) == wanted for member in members)


@contextmanager
def _opened(archive: Path) -> Iterator[Iterator[Member]]:
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                yield _zip_members(opened)
        elif tarfile.is_tarfile(archive):
            with tarfile.open(archive) as tar:
                yield _tar_members(tar)
        else:
            raise InputMissing(
                f"{archive} is neither a folder nor a zip nor a tar",
                hint="name the folder that holds the code",
            )
    except _BROKEN as error:
        raise InputMissing(f"{archive} is damaged: {error}") from error
    except OSError as error:
        raise InputMissing(f"{archive} cannot be read: {error.strerror}") from error


def _zip_members(archive: zipfile.ZipFile) -> Iterator[Member]:
    for info in archive.infolist():
        mode = info.external_attr >> 16
        # Some programs write backslashes, which mean folders there.
        name = info.filename.replace("\\", "/")
        if info.flag_bits & 1:
            raise InputMissing(f"{archive.filename} is encrypted", hint="unpack it and name the folder")
        if stat.S_ISLNK(mode):
            target = archive.read(info)[: _TARGET_BYTES_MAX + 1].decode("utf-8", "surrogateescape")
            yield Member(name, "link", target=target)
        elif info.is_dir() or name.endswith("/"):
            yield Member(name, "folder")
        else:
            opener = _zip_opener(archive, info)
            yield Member(name, "file", info.file_size, bool(mode & 0o100), open=opener, has_modes=mode != 0)


def _zip_opener(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Callable[[], IO[bytes]]:
    return lambda: archive.open(info)


def _tar_members(archive: tarfile.TarFile) -> Iterator[Member]:
    for info in archive:
        if info.issym():
            yield Member(info.name, "link", target=info.linkname)
        elif info.islnk():
            yield Member(info.name, "copy", target=info.linkname)
        elif info.isdir():
            yield Member(info.name, "folder")
        elif info.isfile():
            yield Member(
                info.name, "file", info.size, bool(info.mode & 0o100), open=_tar_opener(archive, info)
            )
        else:
            yield Member(info.name, "special")


def _tar_opener(archive: tarfile.TarFile, info: tarfile.TarInfo) -> Callable[[], IO[bytes] | None]:
    return lambda: archive.extractfile(info)


def _refuse_escapes(archive: Path, members: Iterable[Member]) -> None:
    """Refuse an archive with any member that would be written, or would lead, outside the folder."""
    wrong: list[str] = []
    links: dict[str, str] = {}
    paths: list[str] = []
    for member in members:
        path = _normal(member.name)
        if path is None:
            wrong.append(
                f"{member.name} is {'absolute' if _is_absolute(member.name) else 'outside the folder'}"
            )
            continue
        paths.append(path)
        if member.kind == "link":
            links[path] = member.target
        elif member.kind == "copy" and _normal(member.target) is None:
            wrong.append(f"{member.name} is a link to {member.target}, which is outside")
    wrong += [f"{path} is a link to {links[path]}, which is outside" for path in sorted(leading_out(links))]
    wrong += [f"{path} goes through a link" for path in through_links(paths, links)]
    if wrong:
        more = f" and {len(wrong) - _NAMED_MAX} more" if len(wrong) > _NAMED_MAX else ""
        raise InputMissing(
            f"{archive} would write outside its folder: {'; '.join(wrong[:_NAMED_MAX])}{more}",
            hint="nothing was unpacked; pack it again without these",
        )


def _is_absolute(name: str) -> bool:
    return name.startswith("/") or (len(name) > 1 and name[1] == ":" and name[0].isalpha())


def _normal(name: str) -> str | None:
    """Return a member's path without empty parts and dots; empty for the folder itself, None outside it."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if _is_absolute(name) or ".." in parts or "\0" in name:
        return None
    return "/".join(parts)


def _refuse_too_large(archive: Path, members: list[Member], target: Path) -> None:
    total = sum(member.size for member in members)
    if len(members) > _MEMBERS_MAX:
        raise InputMissing(f"{archive} has {len(members):,} members; at most {_MEMBERS_MAX:,} are taken")
    free = shutil.disk_usage(target).free
    if total > free:
        raise CannotWrite(f"{archive} needs {total:,} bytes unpacked, and {target} has {free:,} left")


def _write_all(archive: Path, members: list[Member], folder: Path) -> list[str]:
    """Write folders and files, then copies, and links last, so that nothing is written through one."""
    skipped: list[str] = []
    for kind in ("folder", "file", "copy", "link"):
        for member in members:
            path = _normal(member.name)
            if path and member.kind == kind and not _is_of_git(member):
                _write(archive, member, folder, path)
    skipped += [member.name for member in members if member.kind == "special"]
    return skipped


def _is_of_git(member: Member) -> bool:
    return ".git" in member.name.split("/")


def _write(archive: Path, member: Member, folder: Path, path: str) -> None:
    target = folder / path
    try:
        if member.kind == "folder":
            target.mkdir(parents=True, exist_ok=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_symlink() or target.is_file():
            # A name that comes twice: the later one counts.
            target.unlink()
        if member.kind == "link":
            os.symlink(member.target, target)  # noqa: PTH211 - its bytes as they are
        elif member.kind == "copy":
            shutil.copyfile(folder / (_normal(member.target) or "."), target, follow_symlinks=False)
        else:
            _write_file(member, target)
    except (FileExistsError, IsADirectoryError, NotADirectoryError):
        raise InputMissing(f"{archive} is damaged: {member.name} is both a file and a folder") from None
    except FileNotFoundError:
        raise InputMissing(
            f"{archive} is damaged: {member.name} is a link to {member.target}, which is not in it"
        ) from None


def _write_file(member: Member, target: Path) -> None:
    source = member.open()
    if source is None:
        raise ValueError(f"{member.name} has no content")
    left = member.size
    with source, target.open("xb") as stream:
        first = chunk = source.read(min(_COPY_BYTES, left + 1))
        while chunk:
            left -= len(chunk)
            if left < 0:
                raise ValueError(f"{member.name} is longer than it says")
            stream.write(chunk)
            chunk = source.read(min(_COPY_BYTES, left + 1))
    is_script = not member.has_modes and first.startswith(b"#!")
    target.chmod(0o755 if member.executable or is_script else 0o644)
