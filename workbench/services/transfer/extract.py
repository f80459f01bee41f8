"""Takes a job's files as a tar stream and writes them here: nothing outside, nothing over what is there untold."""

from __future__ import annotations

import shutil
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from runners.shared.download import inside
from workbench.data.code.links import stays_inside
from workbench.errors import BackendError

_COPY_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Received:
    """What came."""

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
            raise BackendError("the file is gone, or no file any more")
        shutil.copyfileobj(content, target, _COPY_BYTES)
        received.files, received.size_bytes = 1, member.size
    return received


def receive_folder(stream: BinaryIO, folder: Path) -> Received:
    """Write all of a stream into a folder that is empty.

    Raises:
        BackendError: the place names something outside of the folder.
    """
    received = Received()
    links: dict[Path, str] = {}
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
            elif member.issym() and stays_inside(member.name, member.linkname):
                links[path] = member.linkname
            else:
                received.left_out.append(member.name)
    # Last, so that nothing was written through one.
    for path, target in links.items():
        path.symlink_to(target)
    return received
