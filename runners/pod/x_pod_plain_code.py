"""Sends code into a waiting init container without Python: a tar, or file by file in base64 where there is no tar."""

from __future__ import annotations

import base64
import shlex
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from backends.contract.cluster import Cluster
from runners.pod.container_host import Reader
from runners.pod.names import PREPARE
from runners.pod.sh_files import PlainFiles
from workbench.errors import LaunchRefused
from workbench.learner.pod import config
from workbench.learner.pod.init_container import ARRIVED

CHUNK_BYTES: Final = 384 * 1024
"""A shell keeps so much of the script in memory, a third more in base64."""

UNPACKED: Final = config.JOURNAL + "/code.arrived"
"""Made when all files are in their place."""


def send_plain(cluster: Cluster, pod: str, archive: Path) -> None:
    """Send a snapshot; it is there whole, or the container goes on waiting.

    Raises:
        LaunchRefused: the image has neither tar nor base64.
        PlaceUnreachable: the connection broke; it is sent anew.
    """
    files = PlainFiles(cluster, pod, PREPARE)
    if files.has("tar"):
        with archive.open("rb") as stream:
            files.put(ARRIVED, stream, 0o600)
        return
    if not files.has("base64"):
        raise LaunchRefused(
            "The image has no Python 3.8, no tar and no base64, and code of this size cannot be brought into it.",
            hint="leave what is large to a data store or a volume, or take an image with tar",
        )
    command = cluster.exec(pod, PREPARE, ["sh", "-s"], stdin=True)
    with tarfile.open(archive, "r:*") as tar:
        for piece in _script(tar):
            command.write(piece)
    reader = Reader(command)
    reader.readall()
    if command.wait() != 0:
        said = reader.complaints.decode("utf-8", "replace").strip().splitlines()
        raise LaunchRefused(f"The code cannot be unpacked in the image: {said[-1] if said else 'no reason'}.")


def _script(tar: tarfile.TarFile) -> Iterator[bytes]:
    """Yield a program that makes what an archive holds."""
    yield f"set -e\nmkdir -p {config.MODEL}\ncd {config.MODEL}\n".encode()
    for member in tar:
        path = shlex.quote(f"./{member.name}").encode("utf-8", "surrogateescape")
        parent, slash, _ = f"./{member.name}".rpartition("/")
        above = shlex.quote(parent + slash).encode("utf-8", "surrogateescape")
        if member.isdir():
            yield b"mkdir -p %s\n" % path
        elif member.issym():
            target = shlex.quote(member.linkname).encode("utf-8", "surrogateescape")
            yield b"mkdir -p %s; ln -sfn %s %s\n" % (above, target, path)
        elif (content := tar.extractfile(member)) is not None:
            yield b"mkdir -p %s; : >%s\n" % (above, path)
            yield from _lines(content, path)
            yield b'[ "$(wc -c <%s)" -eq %d ]; chmod %o %s\n' % (path, member.size, member.mode & 0o777, path)
    # No reader of a script waits for the end of its input then.
    yield f": >{UNPACKED}\nexit 0\n".encode()


def _lines(content: IO[bytes], path: bytes) -> Iterator[bytes]:
    while data := content.read(CHUNK_BYTES):
        yield b"base64 -d >>%s <<'='\n%s=\n" % (path, base64.encodebytes(data))
