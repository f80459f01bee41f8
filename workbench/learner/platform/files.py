"""Files on a host: folders made and removed, small files written, journals read by offset."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import struct
from io import FileIO
from types import MappingProxyType
from typing import BinaryIO, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from workbench.learner.platform import system
from workbench.learner.platform.beneath import Root, relative
from workbench.learner.platform.errors import Failure, naming
from workbench.learner.platform.open_files import add_mode, give_back, temporary_name

_INDEX_ENTRY = 24
_INDEX_HEADER = 24
_BACKWARDS_BYTES = 64 * 1024

Read = Tuple[bytes, int, int]
"""Bytes, where they begin, and the published end of their file."""


Below = Mapping[str, Sequence[str]]
"""Paths by the folder that they are relative to, whose content a job may change: no link leads out of it."""


_marks: Dict[str, str] = {}


def make_nothing_without(folder: str, mark: str) -> None:
    """Have this process make a folder, and folders in it, only where a file of that name lies in it.

    It is for a home, which others have made: where its file is missing, its mount has ended, and what was made there
    would lie in the bare mount point, hidden as soon as the mount is back.
    """
    _marks[os.path.normpath(folder)] = mark


def make_folders(paths: Iterable[str], below: Below = MappingProxyType({}), mode: int = 0o700) -> None:
    """Make folders and those on the way, 0700 each; what is there is left as it is.

    Raises:
        Failure: they would lie in a home that is not there now (:func:`make_nothing_without`).
    """
    _make_folders(paths, mode)
    for root, inner in below.items():
        with Root(root) as opened:
            for path in inner:
                os.close(opened.make_folder(path))


def _make_folders(paths: Iterable[str], mode: int) -> None:
    for path in paths:
        if os.path.isdir(path):
            continue
        for folder, mark in _marks.items():
            if path == folder or path.startswith(folder + os.sep):
                _make_in_marked(folder, mark, path, mode)
                break
        else:
            _make_folder(path, mode)


def _make_in_marked(folder: str, mark: str, path: str, mode: int) -> None:
    # From the descriptor on, a mount that ends takes what is made along.
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.stat(mark, dir_fd=descriptor)
            inside = os.path.relpath(path, folder)
            if inside != os.curdir:
                _make_folder(inside, mode, descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno != errno.ENOENT and error.errno not in system.MOUNT_ENDED:
            raise
        text = f"{folder} is not there now: {os.path.join(folder, mark)} is missing."
        raise Failure("try_again", text, "If it was mounted, mount it again.") from error


def _make_folder(path: str, mode: int, at: Optional[int] = None) -> None:
    missing = []
    while path and not _is_folder(path, at):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        try:
            os.mkdir(folder, mode, dir_fd=at)
        except FileExistsError:
            if not _is_folder(folder, at):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from None


def _is_folder(path: str, at: Optional[int]) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path, dir_fd=at).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def runnable(paths: Iterable[str]) -> Sequence[str]:
    """Return those files that we may execute."""
    return [path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)]


def touch(paths: Iterable[str]) -> None:
    """Make empty files where there is nothing; what is there, a link too, is left as it is."""
    for path in paths:
        folder, name = os.path.split(path)
        with Root(folder) as root:
            root.create(name, 0o600)


def make_pipes(paths: Iterable[str]) -> None:
    """Make named pipes that anybody may use who gets as far as their folder; what is there is left as it is."""
    for path in paths:
        folder, name = os.path.split(path)
        with contextlib.suppress(FileExistsError), Root(folder) as root:
            os.mkfifo(name, dir_fd=root.descriptor)
            add_mode(root.descriptor, name, 0o666)


_REMOVE_TRIES = 10
"""How often a folder is removed whose files vanish, or are made, meanwhile."""


def remove(paths: Iterable[str]) -> None:
    """Remove files and whole folders; links are not followed, and what is not there is not an error.

    Raises:
        OSError: ``FileNotFoundError``, too: a file system may list entries, again and again, that are not there.
    """
    for path in paths:
        for left in reversed(range(_REMOVE_TRIES)):
            if not os.path.isdir(path) or os.path.islink(path):
                break
            try:
                _open_up(path)
                shutil.rmtree(path)  # it holds the folders that it is in: no link in their place is followed
            except OSError as error:
                # Another host that has the folder, too, may remove it as well, or a process that ends write into it.
                if error.errno not in (errno.ENOENT, errno.ENOTEMPTY) or not left:
                    raise
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


MOVING = ".moving"
"""What follows a folder's name in that of the file that says that not all of the folder is there yet."""


def is_put(folder: str) -> bool:
    """Say whether a folder is there, and whole if it is :func:`put_folder` that has put it there."""
    return os.path.isdir(folder) and not os.path.lexists(folder + MOVING)


def put_folder(made: str, folder: str) -> None:
    """Give a whole folder its name: at one blow, or file by file where that would lose them.

    Raises:
        OSError: another folder has the name, and is not empty.
    """
    if not system.loses_moved_folders(os.path.dirname(folder)):
        os.rename(made, folder)
        return
    if os.path.isdir(folder):
        os.rmdir(folder)
    os.close(os.open(folder + MOVING, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    _move_files(made, folder)
    os.unlink(folder + MOVING)


def remove_put(folder: str) -> None:
    """Remove a folder that :func:`put_folder` has put there, or was killed at."""
    remove([folder, folder + MOVING])


def _move_files(source: str, target: str) -> None:
    os.mkdir(target, stat.S_IMODE(os.stat(source).st_mode))
    with os.scandir(source) as found:
        entries = list(found)
    for entry in entries:
        to = os.path.join(target, entry.name)
        if entry.is_dir(follow_symlinks=False):
            _move_files(entry.path, to)
        else:
            os.rename(entry.path, to)
    os.rmdir(source)


def open_to_all(trees: Iterable[str], read_only: Iterable[str], below: Below = MappingProxyType({})) -> None:
    """Let every user change these trees and read these files; links are not followed.

    Args:
        trees: folders to open with all that is in them.
        read_only: files that everybody may read.
        below: paths relative to a root that others may write in, each opened as a tree.
    """
    for path in trees:
        with Root(path) as root:
            _open_tree(root, "")
    for folder, inner in below.items():
        with Root(folder) as root:
            for path in inner:
                _open_tree(root, path)
    for path in read_only:
        folder, name = os.path.split(path)
        with Root(folder, follow=True) as root:
            root.stat(name, follow=False)
            add_mode(root.descriptor, name, 0o444)


def _open_tree(root: Root, tree: str) -> None:
    folder = root.open_folder(tree)
    try:
        add_mode(folder, ".", 0o777)
    finally:
        os.close(folder)
    for _, folder, folders, names in root.walk(tree):
        for name, bits in [(one, 0o777) for one in folders] + [(one, 0o666) for one in names]:
            add_mode(folder, name, bits)


def is_foreign(paths: Iterable[str], uid: int) -> bool:
    """Say whether anything in these trees belongs to somebody else, or cannot be read; links are not followed."""
    errors: List[OSError] = []
    for path in paths:
        if os.path.lexists(path) and os.lstat(path).st_uid != uid:
            return True
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), Root(path) as root:
            for _, folder, folders, names in root.walk(onerror=errors.append):
                if any(_owner(folder, name, uid) != uid for name in (*folders, *names)):
                    return True
    return any(not isinstance(error, (FileNotFoundError, NotADirectoryError)) for error in errors)


def _owner(folder: int, name: str, default: int) -> int:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_uid
    except FileNotFoundError:  # a job's last words
        return default


def existing(paths: Iterable[str]) -> Sequence[str]:
    """Return those paths that are there."""
    return [path for path in paths if os.path.lexists(path)]


def children(folder: str) -> Sequence[str]:
    """Return the names of what is in a folder; nothing where there is none."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def read(offsets: Mapping[str, int], limit_bytes: int) -> Dict[str, Read]:
    """Read files from offsets on, up to their published end; what is not there is left out."""
    found = {}
    for path, offset in offsets.items():
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), open(path, "rb") as stream:
            end = published_end(path, stream)
            stream.seek(offset)
            found[path] = (stream.read(max(0, min(limit_bytes, end - offset))), offset, end)
    return found


def published_end(path: str, stream: BinaryIO) -> int:
    """Return how far a file may be read.

    A journal's output as far as its index says, an index in whole entries, anything else to its last
    complete line.
    """
    size = os.fstat(stream.fileno()).st_size
    folder, name = os.path.split(path)
    if name == "output.idx":
        return size - size % _INDEX_ENTRY
    if name == "output.log":
        return min(size, _indexed_end(os.path.join(folder, "output.idx")))
    return _last_line_end(stream, size)


def _indexed_end(index: str) -> int:
    try:
        with open(index, "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            entries = (size - _INDEX_HEADER) // _INDEX_ENTRY
            if entries < 1:
                return 0
            stream.seek(_INDEX_HEADER + (entries - 1) * _INDEX_ENTRY)
            return int(struct.unpack("<Q", stream.read(8))[0])
    except FileNotFoundError:
        return 0


def _last_line_end(stream: BinaryIO, size: int) -> int:
    end = size
    while end > 0:
        start = max(0, end - _BACKWARDS_BYTES)
        stream.seek(start)
        newline = stream.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _open_up(folder: str) -> None:
    """Give ourselves the right to remove what a job has locked away."""
    with contextlib.suppress(PermissionError):
        os.chmod(folder, 0o700)
    with Root(folder) as root:
        for _, descriptor, folders, _ in root.walk():
            for name in folders:
                with contextlib.suppress(OSError):  # somebody else's, or gone
                    give_back(descriptor, name)


CHUNK_BYTES = 256 * 1024


def write_files(files: Mapping[str, str], mode: int = 0o600, *, durable: bool = False) -> None:
    """Write small files, each whole or not at all, their folders with them; ``durable`` is over a power cut, too."""
    for path, text in files.items():
        with Upload(path, "", mode) as upload:
            upload.write(text.encode("utf-8", "surrogateescape"))
            upload.finish(durable=durable)


class Upload:
    """A file that is written under another name, and renamed to its own when it is complete.

    With a ``sha256`` what an interrupted upload left is kept: :attr:`offset` says where to go on (-1: it
    is there). Of what another agent still writes, a copy is gone on with. With ``within`` the way to the file is
    walked below that folder, whose content others may change; nothing is gone on with there.
    """

    def __init__(self, path: str, sha256: str, mode: int = 0o600, within: str = "") -> None:
        self._path = path
        self._sha256 = "" if within else sha256
        self._digest = hashlib.sha256()
        self._stream: Optional[FileIO] = None
        self.offset = 0
        if self._sha256 and _is_there(path, self._sha256):
            self.offset = -1
            return
        folder, self._name = os.path.split(path)
        self._folder = _folder_of(folder, within)
        try:
            self._stream, self._temporary = self._begin(mode)
        except BaseException as error:
            os.close(self._folder)
            if isinstance(error, OSError):
                error.filename = path  # the temporary one says nothing
            raise
        if self._sha256:
            self._read_what_is_there()

    def write(self, data: bytes) -> None:
        """Append bytes."""
        if self._stream is not None:
            self._digest.update(data)
            with naming(self._path):
                _write_all(self._stream, data)

    def finish(self, *, durable: bool = True) -> None:
        """Rename the file to its own name; ``durable`` waits until it would survive a power cut.

        Raises:
            Failure: the bytes are not those that were announced; nothing is left of them.
        """
        if self._stream is None:
            return
        if self._sha256 and self._digest.hexdigest() != self._sha256:
            self._drop()
            raise Failure("bad_input", f"What arrived of {self._path} is not what was sent.", "Try again.")
        if durable:
            with naming(self._path):
                os.fsync(self._stream.fileno())
        os.rename(self._temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._close()

    def __enter__(self) -> Upload:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is None:
            return
        if self._sha256:
            self._close()  # what is there is kept, for the next try to go on from
        else:
            self._drop()

    def _begin(self, mode: int) -> Tuple[FileIO, str]:
        held = None
        if self._sha256:
            temporary = f".{self._name}.{self._sha256[:16]}.part"
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o600, dir_fd=self._folder)
            stream = open(descriptor, "a+b", buffering=0)  # noqa: SIM115 - closed when the upload is
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # It may have been finished, and renamed, between the open and the lock.
                if os.path.samestat(os.fstat(stream.fileno()), os.stat(temporary, dir_fd=self._folder)):
                    os.fchmod(stream.fileno(), mode)
                    return stream, temporary
            except FileNotFoundError:
                pass  # somebody else has just sent the same
            except BlockingIOError:
                # Somebody else is sending the same, or we ourselves did, over a link that was cut: an agent may
                # learn of that minutes later.
                held = stream
            if held is None:
                stream.close()
        if held is None:
            return self._begin_own(mode)
        with held:
            return self._begin_own(mode, held)

    def _begin_own(self, mode: int, begun: Optional[FileIO] = None) -> Tuple[FileIO, str]:
        """Begin a file that nobody else writes, with what ``begun`` holds so far."""
        temporary = temporary_name(self._name)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600, dir_fd=self._folder)
        stream = open(descriptor, "w+b", buffering=0)  # noqa: SIM115 - closed when the upload is
        try:
            os.fchmod(stream.fileno(), mode)
            if begun is not None:
                begun.seek(0)
                for data in iter(lambda: begun.read(CHUNK_BYTES), b""):
                    _write_all(stream, data)
        except BaseException:
            stream.close()
            os.unlink(temporary, dir_fd=self._folder)
            raise
        return stream, temporary

    def _read_what_is_there(self) -> None:
        assert self._stream is not None
        self._stream.seek(0)
        while True:
            data = self._stream.read(CHUNK_BYTES)
            if not data:
                break
            self._digest.update(data)
        self.offset = self._stream.tell()

    def _drop(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._temporary, dir_fd=self._folder)
        self._close()

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
            os.close(self._folder)


def _write_all(stream: FileIO, data: bytes) -> None:
    """Write all bytes: one call writes what there is room for, and says nothing of the rest."""
    view = memoryview(data)
    while view:
        view = view[stream.write(view) :]


def _folder_of(folder: str, within: str) -> int:
    """Open the folder that a file goes into; it is made where there is none."""
    if within:
        with Root(within) as root:
            return root.make_folder(relative(folder, within))
    make_folders([folder])
    return os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _is_there(path: str, sha256: str) -> bool:
    if not os.path.isfile(path):
        return False
    if sha256 in os.path.basename(path):
        return True  # it got that name by rename when it was whole
    return _sha256_of(path) == sha256


def _sha256_of(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for data in iter(lambda: stream.read(CHUNK_BYTES), b""):
            digest.update(data)
    return digest.hexdigest()
