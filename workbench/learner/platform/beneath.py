"""Files in folders that somebody else may change at any moment: nothing outside of them is ever reached.

What a container may write is hostile: it may put links, pipes and devices where a file was a moment ago. So every
path is walked from the descriptor of its root, no name is looked at first and opened later, and what was opened is
looked at by its descriptor. Links are followed as long as they stay below the root.

Linux walks by itself (``openat2``). Elsewhere, and where it refuses, each part of a path is opened on its own.
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
"""What the kernel says where it has no openat2 or lets nobody use it, and of paths that it does not walk for us."""

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
    """What is at a path is not the kind of file that is asked for."""

    def __init__(self, path: str, expected: str) -> None:
        super().__init__(errno.EINVAL, "it is no %s" % expected, path)


class Root:
    """An open folder. Paths are relative to it and never lead out of it.

    Args:
        folder: its path; with ``/.`` at its end it may be a link.
        follow: whether it may be a link without that, too: only where nobody else can have put it there.
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
        """Open what is at a path, without waiting for anybody; return its descriptor.

        Raises:
            OSError: there is nothing, or it leads out.
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
        """Open a regular file that is there.

        Raises:
            WrongKind: it is a pipe, say.
        """
        return checked(self.open(path, flags, follow=follow), path, stat.S_ISREG, "regular file")

    def open_pipe(self, path: str, flags: int) -> int:
        """Open a named pipe; a link to one is not followed.

        Raises:
            WrongKind: it is a file, say.
        """
        return checked(self.open(path, flags, follow=False), path, stat.S_ISFIFO, "pipe")

    def open_folder(self, path: str = "", *, follow: bool = True) -> int:
        """Open a folder, to list it or to make something in it."""
        return self.open(path, os.O_RDONLY | _FOLDER, follow=follow)

    def make_folder(self, path: str, mode: int = 0o700) -> int:
        """Open a folder, which is made with those above it where there is none."""
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
        """Return what is in a regular file, at most so many bytes."""
        with open(self.open_file(path), "rb") as file:
            return file.read(limit_bytes)

    def stat(self, path: str, *, follow: bool = True) -> os.stat_result:
        """Say what is at a path."""
        with _Walk(self.descriptor, self.below, path, follow=follow) as (folder, name):
            return os.stat(name or ".", dir_fd=folder, follow_symlinks=False)

    def read_link(self, path: str) -> str:
        """Return what a link says."""
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
        """Give every folder: its path, its descriptor while it is looked at, its folders, its other names.

        Paths are relative to ``below``. Links are not followed. Folders that are taken out of the list are left out.
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
        """Remove what is at a path and is no folder; of a link the link itself."""
        with _Walk(self.descriptor, self.below, path, follow=False) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def remove(self, path: str) -> None:
        """Remove what is at a path, with all that is in it, as far as we may; nothing where there is nothing.

        Raises:
            Outside: it is the root itself, or leads out of it.
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
        """Write a file whole or not at all, down to the disk; what is there is replaced, a link too."""
        spot = _Walk(self.descriptor, self.below, path, follow=False)
        with spot as (folder, name), NewFile(folder, name, mode) as file:
            file.write(data)
            file.finish()

    def create(self, path: str, mode: int = 0o644) -> bool:
        """Make an empty file where there is nothing; say whether that was so. What is there stays as it is."""
        with _Walk(self.descriptor, self.below, path, follow=False) as (folder, name):
            try:
                os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | AT_ONCE, mode, dir_fd=folder))
                return True
            except FileExistsError:
                return False

    def below(self, target: str) -> str | None:
        """Return an absolute path relative to the root, by names alone; None for one that is not below it."""
        for root in (os.path.normpath(self.path), os.path.realpath(self.path)):
            if target == root or target.startswith(root.rstrip("/") + "/"):
                return target[len(root) :].lstrip("/")
        return None

    def _make_one(self, path: str, mode: int) -> None:
        try:
            os.close(self.open_folder(path))
        except FileNotFoundError:
            # One that is a link to nothing is not made through it.
            with _Walk(self.descriptor, self.below, path, follow=False) as (folder, name):
                try:
                    os.mkdir(name, mode, dir_fd=folder)
                except FileExistsError:
                    # Two launches at once make the same folder; whatever else has the name stays an error.
                    if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                        raise


class _Walk:
    """Walks a path part by part, with one folder open at a time.

    As a context it gives the folder that the last part is in, and that part, which is empty for the root.

    Args:
        root: where to begin, open.
        below: returns an absolute path relative to the root, or None for one that is not below it.
        path: relative to it.
        follow: whether a link that the path ends in is followed; those on the way are.
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
        """The path without links, once it was walked."""

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
        """Be at the root again."""
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
                # From the root again: what is above an open folder may be another one by now.
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
        """Open the folder that was the last part until now."""
        if self._entered < len(self.parts):
            folder = os.open(self.parts[-1], _STEP, dir_fd=self._folder)
            self.__exit__()
            self._folder = folder
            self._entered = len(self.parts)

    def _target(self, part: str) -> str | None:
        """Return what a link says; None for what is none, or not there."""
        try:
            return os.readlink(part, dir_fd=self._folder)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise

    def _relative(self, target: str) -> str:
        """Return what a link says relative to where the walk is then."""
        if not os.path.isabs(target):
            return target
        below = self._below(target)
        if below is None:
            raise Outside(self._path)
        self._begin()
        return below


def root_of(path: str, roots: Sequence[str]) -> str:
    """Return the outermost of these folders that a path is in, by names alone; empty where it is in none."""
    normal = os.path.join(os.path.normpath(path), "")
    found = [root for root in roots if normal.startswith(os.path.join(os.path.normpath(root), ""))]
    return min(found, key=len, default="")


@contextlib.contextmanager
def opened(path: str, roots: Sequence[str] = ()) -> Iterator[tuple[Root, str]]:
    """Open the root that a folder is in; give it with the folder's path relative to it.

    A folder that is in none of these is its own root: nobody else can change the way to it.

    Raises:
        OSError: there is no such folder.
    """
    root = root_of(path, roots)
    with Root(root or path, follow=not root) as found:
        yield found, relative(path, root) if root else ""


def relative(path: str, root: str) -> str:
    """Return a path relative to the root that it is in, by names alone; empty for the root itself."""
    found = os.path.relpath(path, root)
    return "" if found == os.curdir else found


def open_plainly(path: str, roots: Sequence[str] = ()) -> int:
    """Open a regular file to read it; below the root that it is in, if it is in one of these."""
    root = root_of(path, roots)
    if not root:
        return checked(os.open(path, os.O_RDONLY | AT_ONCE), path, stat.S_ISREG, "regular file")
    with Root(root) as opened_root:
        return opened_root.open_file(relative(path, root))


def copy_tree(
    source: Root, below: str, target: Root, into: str = "", *, include: Callable[[str], bool] | None = None
) -> None:
    """Copy what a folder holds into another one; links stay links, and what is neither file nor folder is left out.

    Args:
        source: the root that the folder is in.
        below: the folder.
        target: the root that the other one is in.
        into: the other one.
        include: says of a file's path whether to copy it; without it empty folders are made, too.
    """
    for path, folder, _, names in source.walk(below):
        if include is None:
            os.close(target.make_folder(os.path.join(into, path), 0o755))
        for name in names:
            if include is None or include(os.path.join(path, name)):
                above = target.make_folder(os.path.join(into, path), 0o755)
                try:
                    copy_file(folder, name, above, name)
                finally:
                    os.close(above)


def checked(descriptor: int, path: str, is_expected: Callable[[int], bool], expected: str) -> int:
    """Return a descriptor that is of the wanted kind; any other is closed.

    Raises:
        WrongKind: it is another one.
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
    """Open a path below an open folder; the kernel sees to it that it stays there.

    Raises:
        OSError: ENOSYS where the kernel does not know how; EXDEV where the path would lead out.
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
