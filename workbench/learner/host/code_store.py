"""Keeps the code of jobs at a host by content: what is there already is not sent again, and each job gets a copy.

``files/<xx>/<sha256>`` are contents, ``<code hash>.list`` says which of them are where in the code of that hash.
A job may write to its own code, so it gets a clone where the file system has those (btrfs, XFS), else a copy; a
hard link would let it change the code of others.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from typing import Any, Dict, Iterator, List, Optional, Sequence

from workbench.learner.host.unpack import BROKEN, inside, make_link, put_in_place, refuse_links
from workbench.learner.platform.errors import Failure, naming
from workbench.learner.platform.files import is_put, make_folders, remove, write_files

FICLONE = 0x40049409
"""The request of Linux that lets two files share their blocks until one of them is written to."""

LISTING = ".list"
_CHUNK_BYTES = 256 * 1024

Entry = Sequence[Any]  # path, kind (file, folder, link), executable, size, sha256, target of a link


def find_missing(store: str, digests: Sequence[str]) -> List[int]:
    """Return the positions of the contents that are not here; those that are will not expire for a while."""
    missing = []
    for position, digest in enumerate(digests):
        try:
            os.utime(_content(store, digest))
        except OSError:
            missing.append(position)
    return missing


def keep(store: str, code_hash: str, entries: Sequence[Entry], part: str) -> None:
    """Take in the contents of an archive, and write down what the code of a hash consists of.

    Args:
        store: the folder.
        code_hash: the hash of the code.
        entries: all files, folders and links of the code.
        part: the archive of the contents that were missing, which is removed; empty for none.

    Raises:
        Failure: a content is not here, or would be the wrong one.
    """
    with held(store, fcntl.LOCK_SH):
        if part:
            try:
                with naming(part):
                    _take_in(store, part)
            except FileNotFoundError:
                pass  # another launch sent the same archive, and has taken it in
            except BROKEN as error:
                raise Failure(
                    "bad_input", "The archive %s cannot be unpacked: %s." % (part, error)
                ) from error
            finally:
                remove([part])
        for path, kind, _, _, digest, _ in entries:
            if kind == "file" and not os.path.exists(_content(store, digest)):
                # It may have expired since it was asked for; the next try sends it.
                raise Failure("try_again", "The content of %r has not arrived." % path)
        write_files({_listing(store, code_hash): json.dumps([list(entry) for entry in entries])})


def copy_code(store: str, code_hash: str, folders: Sequence[str]) -> bool:
    """Make each folder that is not there yet with this code in it; False where the code is not all here."""
    with held(store, fcntl.LOCK_SH):
        entries = read_listing(store, code_hash)
        if entries is None:
            return False
        try:
            for folder in folders:
                if not is_put(folder):
                    _make(store, entries, folder)
            os.utime(_listing(store, code_hash))  # it was used: it does not expire
        except FileNotFoundError:
            return False
    return True


def read_listing(store: str, code_hash: str) -> Optional[List[Entry]]:
    """Return what the code of a hash consists of; None where that is not known here."""
    try:
        with open(_listing(store, code_hash), encoding="ascii") as file:
            entries = json.load(file)
    except (OSError, ValueError):
        return None
    return entries if isinstance(entries, list) else None


def _make(store: str, entries: Sequence[Entry], folder: str) -> None:
    parent = os.path.dirname(folder)
    make_folders([parent])
    temporary = tempfile.mkdtemp(prefix=".%s." % os.path.basename(folder), dir=os.path.realpath(parent))
    try:
        with naming(folder):
            _fill(store, entries, temporary)
        put_in_place(temporary, folder)
    finally:
        if os.path.isdir(temporary):
            remove([temporary])


def _fill(store: str, entries: Sequence[Entry], folder: str) -> None:
    links: Dict[str, str] = {}
    paths = []
    made = {folder}
    for name, kind, executable, size_bytes, digest, target in entries:
        path = inside(folder, name)
        paths.append(os.path.relpath(path, folder))
        above = path if kind == "folder" else os.path.dirname(path)
        if above not in made:
            make_folders([above], mode=0o777)
            made.add(above)
        if kind == "file":
            _clone(_checked(_content(store, digest), size_bytes), path)
            os.chmod(path, 0o755 if executable else 0o644)
            os.utime(path, (0, 0))  # as it is unpacked from an archive
        elif kind == "link":
            links[paths[-1]] = target
    refuse_links(paths, links)
    # Links last: nothing is ever written through one.
    for name, target in links.items():
        make_link(target, os.path.join(folder, name))


def _checked(content: str, size_bytes: int) -> str:
    """Return the path of a content; remove one that is cut short, as a power cut may leave it.

    Raises:
        FileNotFoundError: it is not here, or was removed.
    """
    if os.stat(content).st_size != size_bytes:
        os.unlink(content)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), content)
    return content


_clones = True


def _clone(source: str, target: str) -> None:
    """Make a copy that shares the blocks of the source as long as the file system can."""
    global _clones
    if _clones:
        with open(source, "rb") as reader, open(target, "wb") as writer:
            try:
                fcntl.ioctl(writer.fileno(), FICLONE, reader.fileno())
                return
            except OSError:
                _clones = False
    shutil.copyfile(source, target)


def _take_in(store: str, part: str) -> None:
    with tarfile.open(part, "r:gz") as archive:
        for member in archive:
            if member.isreg():
                _take_file(store, archive, member)


def _take_file(store: str, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    source = archive.extractfile(member)
    assert source is not None
    descriptor, temporary = tempfile.mkstemp(prefix=".taking-", dir=_files(store))
    digest = hashlib.sha256()
    try:
        with os.fdopen(descriptor, "wb") as stream:
            for data in iter(lambda: source.read(_CHUNK_BYTES), b""):
                digest.update(data)
                stream.write(data)
        path = _content(store, digest.hexdigest())
        make_folders([os.path.dirname(path)])
        os.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def held(store: str, how: int) -> Iterator[None]:
    """Hold the store: many may use it at once, and nobody while it is swept."""
    make_folders([_files(store)])
    descriptor = os.open(os.path.join(store, "store.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def _files(store: str) -> str:
    return os.path.join(store, "files")


def _content(store: str, digest: str) -> str:
    if len(digest) != 64 or not digest.isalnum():
        raise Failure("bad_input", "%r is not a sha256." % digest)
    return os.path.join(_files(store), digest[:2], digest)


def _listing(store: str, code_hash: str) -> str:
    if not code_hash.isalnum():
        raise Failure("bad_input", "%r is not a hash of code." % code_hash)
    return os.path.join(store, code_hash + LISTING)
