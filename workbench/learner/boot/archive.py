"""Builds the agent's archive: one file by the name of its content, to be put wherever a learner is to run."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import zipfile

from workbench.learner.boot.unpacked_copy import SUFFIX, unpack
from workbench.learner.platform.files import make_folders

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Iterator

_DATE = (1980, 1, 1, 0, 0, 0)
_SKIPPED = ("__pycache__",)
_NOTE = "built"
"""The file that says which archive came of which sources."""


_built: dict[str, str] = {}
_packed: dict[str, bytes] = {}


def build(folder: str) -> str:
    """Write the archive into a folder, unless it is there, and return its path: ``<folder>/<sha256>.pyz``.

    Beside it lies an unpacked copy by the same name, from which :func:`guard_argv` starts. The same sources
    give the same archive, byte for byte.

    Raises:
        OSError: the folder cannot be written.
    """
    path = _built.get(folder, "") or _built_before(folder)
    if not path or not os.path.exists(path):
        stamp, content = packed()
        path = os.path.join(folder, hashlib.sha256(content).hexdigest() + SUFFIX)
        _put(path, content)
        _note(folder, stamp, path)
    _built[folder] = path
    unpack(path)
    return path


def guard_argv(python: str, agent: str, learner_dir: str) -> list[str]:
    """Return the command that keeps a learner: the interpreter without ``site``, which takes longest of all.

    Measured, a trivial job from start to end: unpacked without ``site`` 30 ms, with it 45 ms, archive 64 ms.
    """
    unpacked = os.path.join(agent[: -len(SUFFIX)], "__main__.py")
    return [python, "-I", "-S", unpacked if os.path.exists(unpacked) else agent, "guard", learner_dir]


def _built_before(folder: str) -> str:
    """Return the archive that another process built from the same sources; empty where none did.

    Packing takes 60 ms of every controller's start, looking at sizes and times of the sources 2 ms.
    """
    try:
        with open(os.path.join(folder, _NOTE), encoding="utf-8") as file:
            stamp, name = file.read().split()
    except (OSError, ValueError):
        return ""
    return os.path.join(folder, name) if stamp == _stamp() else ""


def _note(folder: str, stamp: str, path: str) -> None:
    new = os.path.join(folder, "%s.new-%d-%d" % (_NOTE, os.getpid(), threading.get_ident()))
    try:
        with open(new, "w", encoding="utf-8") as file:
            file.write("%s %s" % (stamp, os.path.basename(path)))
        os.rename(new, os.path.join(folder, _NOTE))
    except OSError:
        return  # the next process packs again


def _stamp() -> str:
    """Return what changes when a source does: names, sizes and times of all of them."""
    lines = []
    for name, path in _sources():
        found = os.stat(path)
        lines.append("%s %d %d %d" % (name, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return hashlib.sha256("\n".join([package, *sorted(lines)]).encode()).hexdigest()


def packed() -> tuple[str, bytes]:
    """Return a stamp of the sources and the archive's content; it is packed again only where a source has changed."""
    stamp = _stamp()
    if stamp not in _packed:
        content = _content()
        _packed.clear()
        _packed[stamp] = content
    return stamp, _packed[stamp]


def _content() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in sorted(_files()):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = 0o600 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(entry, data)
    return buffer.getvalue()


def _files() -> Iterator[tuple[str, bytes]]:
    yield "workbench/__init__.py", b""
    for name, path in _sources():
        with open(path, "rb") as file:
            yield name, file.read()


def _sources() -> Iterator[tuple[str, str]]:
    """Give what is in the archive: its name there, and the file here."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name, source in (("__main__.py", "bootstrap.py"), ("fabric_learner.py", "fabric_learner.py")):
        yield name, os.path.join(package, source)
    for parent, folders, names in os.walk(package):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        for name in names:
            path = os.path.join(parent, name)
            yield "workbench/learner/" + os.path.relpath(path, package).replace(os.sep, "/"), path


def _put(path: str, content: bytes) -> None:
    if os.path.exists(path):
        return
    make_folders([os.path.dirname(path)])
    # Several launches of one controller put it there at once.
    new = "%s.new-%d-%d" % (path, os.getpid(), threading.get_ident())
    with open(new, "wb") as file:
        file.write(content)
        file.flush()
        # Whoever runs in a container reads it, too; the folder keeps others out.
        os.fchmod(file.fileno(), 0o644)
        os.fsync(file.fileno())
    os.rename(new, path)
