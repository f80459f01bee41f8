"""Trees of files for the tests of snapshots."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65534

FILES: Mapping[str, str | bytes] = {
    "train.py": "print(1)\n",
    "lib/a.py": "a\n",
    "lib/empty/": "",
    "data.bin": b"\x00\xff",
}
"""A small project."""


def make_tree(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files, making folders on the way; a name with a slash at its end is a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def packed_names(snapshot: Path) -> list[str]:
    """Name what a snapshot holds, folders with a slash at their end."""
    with tarfile.open(snapshot) as archive:
        return [member.name + ("/" if member.isdir() else "") for member in archive]


def packed_content(snapshot: Path, name: str) -> bytes:
    """Return the content of a file in a snapshot."""
    with tarfile.open(snapshot) as archive:
        stream = archive.extractfile(name)
        assert stream is not None
        return stream.read()


@contextmanager
def unprivileged(folder: Path) -> Iterator[None]:
    """Be somebody to whom a file can be forbidden, with a folder that is theirs; root may read everything."""
    if os.getuid() != 0:
        yield
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, _NOBODY, -1, follow_symlinks=False)
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
