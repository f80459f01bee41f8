"""Opens files in folders that others may change at any moment, and never reaches anything outside of them.

A container may be hostile: it may put links, pipes and devices where a file was a moment ago. So every path is
resolved from an open descriptor of its root; no name is checked first and opened later; what was opened is checked by
its descriptor. Links are followed as long as they stay below the root.

Linux resolves such a path itself (``openat2``). Elsewhere, and where the call is refused, each part of the path is
opened on its own.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from workbench.learner.platform.open_files import AT_ONCE, NewFile, copy_file, quietly

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Sequence

_WALKED = (
    errno.ENOSYS,
    errno.EPERM,
    errno.EXDEV,
    errno.EAGAIN,
    errno.E2BIG,
    errno.EINVAL,
    errno.ENAMETOOLONG,
)
"""Errors of openat2 after which the path is resolved here: the call is missing or forbidden, or fails for the path."""

_LINKS_MAX = 40
_STEPS_MAX = 10_000
_OPENAT2 = 437
_RESOLVE_BENEATH = 0x08
_RESOLVE_NO_MAGICLINKS = 0x02
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC


class Outside(OSError):
    """A path leads out of its root."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EXDEV, "it leads out of its folder", path)


class WrongKind(OSError):
    """There is a file of another kind at the path."""

    def __init__(self, path: str, expected: str) -> None:
        super().__init__(errno.EINVAL, "it is no %s" % expected, path)


class Root:
    """An open folder; the paths of its methods are relative to it and never lead out of it.

    Args:
        folder: its path; a link is refused unless the path ends with ``/.``.
        follow: whether a link is accepted in any case: only where no other user can have made it.
    """

    def __init__(self, folder: str, *, follow: bool = False) -> None:
        self.path = folder
        self.descriptor = os.open(folder, os.O_RDONLY | _FOLDER | (0 if follow else os.O_NOFOLLOW))

    def __enter__(self) -> Root:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the descriptor back."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    # Opening

    def open(self, path: str, flags: int, mode: int = 0o600, *, follow: bool = True) -> int:
        """Open a path without blocking; return its descriptor.

        Raises:
            OSError: nothing is there, or the path leads out of the root.
        """
        if "\0" in path:
            raise Outside(path)
        flags |= AT_ONCE | (0 if follow else os.O_NOFOLLOW)
        if follow or "/" in path:
            try:
                return openat2(self.descriptor, path or ".", flags, mode)
            except OSError as error:
                if error.errno not in _WALKED:
                    raise
        with _Walk(self.descriptor, self.below, path, follow=follow) as (folder, name):
            return os.open(name or ".", flags | os.O_NOFOLLOW, mode, dir_fd=folder)

    def open_file(self, path: str, flags: int = os.O_RDONLY, *, follow: bool = True) -> int:
        """Open an existing regular file.

        Raises:
            WrongKind: it is another kind of file, such as a pipe.
        """
        return checked(self.open(path, flags, follow=follow), path, stat.S_ISREG, "regular file")

    def open_pipe(self, path: str, flags: int) -> int:
        """Open a named pipe; a link to one is not followed.

        Raises:
            WrongKind: it is another kind of file.
        """
        return checked(self.open(path, flags, follow=False), path, stat.S_ISFIFO, "pipe")

    def open_folder(self, path: str = "", *, follow: bool = True) -> int:
        """Open a folder, to list it or to make something in it."""
        return self.open(path, os.O_RDONLY | _FOLDER, follow=follow)

    def make_folder(self, path: str, mode: int = 0o700) -> int:
        """Open a folder; missing folders on the path are made."""
        try:
            return self.open_folder(path)
        except FileNotFoundError:
            done = ""
            for part in _parts(path):
                done = os.path.join(done, part)
                self._make_one(done, mode)
            return self.open_folder(path)

    # Reading and looking

    def read(self, path: str, limit_bytes: int = -1) -> bytes:
        """Return the content of a regular file, at most ``limit_bytes`` of it."""
        with open(self.open_file(path), "rb") as file:
            return file.read(limit_bytes)

    def stat(self, path: str, *, follow: bool = True) -> os.stat_result:
        """Return the status of a path."""
        with _Walk(self.descriptor, self.below, path, follow=follow) as (folder, name):
            return os.stat(name or ".", dir_fd=folder, follow_symlinks=False)

    def read_link(self, path: str) -> str:
        """Return the target of a link."""
        with _Walk(self.descriptor, self.below, path, follow=False) as (folder, name):
            return os.readlink(name, dir_fd=folder)

    def real(self, path: str) -> str:
        """Return a path without its links, relative to the root; empty for the root itself."""
        walk = _Walk(self.descriptor, self.below, path, follow=True)
        with walk:
            return "/".join(walk.parts)

    def walk(
        self, below: str = "", *, onerror: Callable[[OSError], Any] | None = None
    ) -> Iterator[tuple[str, int, list[str], list[str]]]:
        """Yield every folder: its path, its open descriptor, the names of its folders, and its other names.

        Paths are relative to ``below``. Links are not followed. Folders that the caller removes from the list are
        skipped. The descriptor is closed when the next folder is requested.
        """
        waiting = [""]
        while waiting:
            path = waiting.pop()
            try:
                folder = self.open_folder(os.path.join(below, path), follow=not path)
            except OSError as error:
                if onerror is not None:
                    onerror(error)
                continue
            try:
                folders, names = _listed(folder)
                yield path, folder, folders, names
            finally:
                os.close(folder)
            waiting += [os.path.join(path, name) for name in reversed(folders)]

    # Changing

    def unlink(self, path: str) -> None:
        """Remove a file, pipe or link; a link is removed itself, not its target."""
        with _Walk(self.descriptor, self.below, path, follow=False) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def remove(self, path: str) -> None:
        """Remove a file or a whole folder, as far as it is allowed; a missing path is not an error.

        Raises:
            Outside: the path is the root itself, or leads out of it.
        """
        if not self.real(os.path.dirname(path)) and os.path.basename(path) in ("", "."):
            raise Outside(path)
        try:
            is_folder = stat.S_ISDIR(self.stat(path, follow=False).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return
        if not is_folder:
            self.unlink(path)
            return
        emptied = []
        for one, folder, _, names in self.walk(path):
            emptied.append(os.path.join(path, one) if one else path)
            for name in names:
                quietly(os.unlink, name, dir_fd=folder)
        for one in reversed(emptied):
            with _Walk(self.descriptor, self.below, one, follow=False) as (folder, name):
                quietly(os.rmdir, name, dir_fd=folder)

    def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Write a file atomically and durably; an existing file or link is replaced."""
        spot = _Walk(self.descriptor, self.below, path, follow=False)
        with spot as (folder, name), NewFile(folder, name, mode) as file:
            file.write(data)
            file.finish()

    def create(self, path: str, mode: int = 0o644) -> bool:
        """Make an empty file; return False, and change nothing, where the path exists."""
        with _Walk(self.descriptor, self.below, path, follow=False) as (folder, name):
            try:
                os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | AT_ONCE, mode, dir_fd=folder))
                return True
            except FileExistsError:
                return False

    def below(self, target: str) -> str | None:
        """Return an absolute path relative to the root, without reading the disk; None if it is not below it."""
        for root in (os.path.normpath(self.path), os.path.realpath(self.path)):
            if target == root or target.startswith(root.rstrip("/") + "/"):
                return target[len(root) :].lstrip("/")
        return None

    def _make_one(self, path: str, mode: int) -> None:
        try:
            os.close(self.open_folder(path))
        except FileNotFoundError:
            # A dangling link is not followed.
            with _Walk(self.descriptor, self.below, path, follow=False) as (folder, name):
                try:
                    os.mkdir(name, mode, dir_fd=folder)
                except FileExistsError:
                    # Two launches may make the same folder at once; any other kind of file is an error.
                    if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                        raise


class _Walk:
    """Resolves a path part by part, with one folder open at a time.

    As a context manager it returns the descriptor of the folder that holds the last part, and that part's name, which
    is empty for the root.

    Args:
        root: the descriptor of the folder to start from.
        below: returns an absolute path relative to the root, None if it is not below it.
        path: relative to it.
        follow: whether a link at the end of the path is followed; links before it always are.
    """

    def __init__(self, root: int, below: Callable[[str], str | None], path: str, *, follow: bool) -> None:
        if "\0" in path or os.path.isabs(path):
            raise Outside(path)
        self._root = root
        self._below = below
        self._path = path
        self._follow = follow
        self._folder = root
        self._entered = 0
        self.parts: list[str] = []
        """The resolved path, without links."""

    def __enter__(self) -> tuple[int, str]:
        try:
            self._go()
        except BaseException:
            self._begin()
            raise
        return self._folder, self.parts[-1] if self.parts else ""

    def __exit__(self, *_: object) -> None:
        if self._folder != self._root:
            os.close(self._folder)
            self._folder = self._root

    def _begin(self) -> None:
        """Go back to the root."""
        self.__exit__()
        self._entered = 0
        self.parts = []

    def _go(self) -> None:
        waiting = _parts(self._path)[::-1]
        links = 0
        for _ in range(_STEPS_MAX):
            if not waiting:
                return
            part = waiting.pop()
            if part == "..":
                # Start again at the root: the parent of an open folder may have changed meanwhile.
                waiting += self._above()[::-1]
                self._begin()
                continue
            self._enter()
            target = self._target(part) if waiting or self._follow else None
            if target is None:
                self.parts.append(part)
                continue
            links += 1
            if links > _LINKS_MAX:
                break
            waiting += _parts(self._relative(target))[::-1]
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self._path)

    def _above(self) -> list[str]:
        if not self.parts:
            raise Outside(self._path)
        return self.parts[:-1]

    def _enter(self) -> None:
        """Open the folder of the last resolved part."""
        if self._entered < len(self.parts):
            folder = os.open(self.parts[-1], _STEP, dir_fd=self._folder)
            self.__exit__()
            self._folder = folder
            self._entered = len(self.parts)

    def _target(self, part: str) -> str | None:
        """Return the target of a link; None for anything else, or nothing."""
        try:
            return os.readlink(part, dir_fd=self._folder)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise

    def _relative(self, target: str) -> str:
        """Return the target of a link relative to the current folder; an absolute one goes back to the root first."""
        if not os.path.isabs(target):
            return target
        below = self._below(target)
        if below is None:
            raise Outside(self._path)
        self._begin()
        return below


def root_of(path: str, roots: Sequence[str]) -> str:
    """Return the outermost of these folders that a path is in, without reading the disk; empty where it is in none."""
    normal = os.path.join(os.path.normpath(path), "")
    found = [root for root in roots if normal.startswith(os.path.join(os.path.normpath(root), ""))]
    return min(found, key=len, default="")


@contextlib.contextmanager
def opened(path: str, roots: Sequence[str] = ()) -> Iterator[tuple[Root, str]]:
    """Open the root that a folder is in; yield it with the folder's path relative to it.

    A folder that is in none of these roots is its own root: no other user can change the path to it.

    Raises:
        OSError: there is no such folder.
    """
    root = root_of(path, roots)
    with Root(root or path, follow=not root) as found:
        yield found, relative(path, root) if root else ""


def relative(path: str, root: str) -> str:
    """Return a path relative to the root that it is in, without reading the disk; empty for the root itself."""
    found = os.path.relpath(path, root)
    return "" if found == os.curdir else found


def open_plainly(path: str, roots: Sequence[str] = ()) -> int:
    """Open a regular file for reading; if it is in one of these roots, never outside of it."""
    root = root_of(path, roots)
    if not root:
        return checked(os.open(path, os.O_RDONLY | AT_ONCE), path, stat.S_ISREG, "regular file")
    with Root(root) as opened_root:
        return opened_root.open_file(relative(path, root))


def copy_tree(
    source: Root,
    below: str,
    target: Root,
    into: str = "",
    *,
    include: Callable[[str], bool] | None = None,
    check_stop: Callable[[], None] | None = None,
) -> None:
    """Copy the content of a folder into another one; links stay links, pipes and devices are left out.

    Args:
        source: the root of the folder.
        below: the folder's path in it.
        target: the root of the destination.
        into: the destination's path in it.
        include: whether to copy the file with this path; None copies all files, and empty folders.
        check_stop: is called before each file; what it raises ends the copy.
    """
    for path, folder, _, names in source.walk(below):
        if include is None:
            os.close(target.make_folder(os.path.join(into, path), 0o755))
        for name in names:
            if check_stop is not None:
                check_stop()
            if include is None or include(os.path.join(path, name)):
                above = target.make_folder(os.path.join(into, path), 0o755)
                try:
                    copy_file(folder, name, above, name)
                finally:
                    os.close(above)


def checked(descriptor: int, path: str, is_expected: Callable[[int], bool], expected: str) -> int:
    """Return the descriptor if its file is of the expected kind; otherwise close it.

    Raises:
        WrongKind: it is of another kind.
    """
    if not is_expected(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise WrongKind(path, expected)
    return descriptor


def _listed(folder: int) -> tuple[list[str], list[str]]:
    folders: list[str] = []
    names: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            (folders if entry.is_dir(follow_symlinks=False) else names).append(entry.name)
    return sorted(folders), sorted(names)


def openat2(folder: int, path: str, flags: int, mode: int) -> int:
    """Open a path below an open folder by Linux's ``openat2``, which refuses to leave the folder.

    Raises:
        OSError: ENOSYS where the system has no such call; EXDEV where the path leads out.
    """
    from workbench.learner.platform import system

    library = system.libc() if system.LINUX else None
    if library is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    import ctypes

    resolve = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS
    how = (ctypes.c_uint64 * 3)(flags, mode if flags & os.O_CREAT else 0, resolve)
    number, size = ctypes.c_long(_OPENAT2), ctypes.c_size_t(ctypes.sizeof(how))
    name = ctypes.c_char_p(os.fsencode(path))
    found = library.syscall(number, ctypes.c_int(folder), name, ctypes.byref(how), size)
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return int(found)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
