"""Files of a container without Python: listed, fetched and written by its shell, with tar if it has one."""

from __future__ import annotations

import contextlib
import hashlib
import io
import posixpath
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, Final, cast

from backends.contract.cluster import Cluster
from runners.interface import FileEntry
from runners.pod.container_host import OutputReader
from workbench.errors import BackendError, InputMissing, NotAllowed

_LIST: Final = """
[ -e "$1" ] || [ -L "$1" ] || exit 0
[ -d "$1" ] && cd "$1" && set -- .
find "$1" | while IFS= read -r path; do
    stat -c '%f %s %Y %n' "$path" || continue
    [ ! -L "$path" ] || readlink "$path"
done
"""
_PUT: Final = """
mkdir -p "${2%/*}" && head -c "$1" >"$2.part" && chmod "$3" "$2.part" || exit 1
if command -v sha256sum >/dev/null 2>&1; then
    sha256sum <"$2.part" | grep -q "^$4" || { echo "what arrived is not what was sent" >&2; exit 1; }
fi
[ "$(wc -c <"$2.part")" -eq "$1" ] && mv -f "$2.part" "$2"
"""
_CHUNK_BYTES: Final = 1 << 16


class ShellFiles:
    """The files of a running container."""

    def __init__(self, cluster: Cluster, pod: str, container: str) -> None:
        self._cluster = cluster
        self._pod = pod
        self._container = container

    def list_files(self, path: str) -> Sequence[FileEntry]:
        """List an absolute path and everything below it."""
        with self._output_of(_LIST, path) as stream:
            lines = stream.read().decode("utf-8", "surrogateescape").splitlines()
        return tuple(_entries(lines, path))

    def fetch(self, path: str, receive: Callable[[BinaryIO], None]) -> None:
        """Send an absolute path as one tar stream to ``receive``.

        Raises:
            InputMissing: the path does not exist.
        """
        entries = self.list_files(path)
        if not entries:
            raise InputMissing(f"there is no {path}")
        if self.has("tar"):
            one = entries[0].kind == "file"
            folder, name = posixpath.split(path.rstrip("/")) if one else (path, ".")
            with self._output_of('exec tar -C "$1" -cf - -- "$2"', folder or "/", name) as stream:
                receive(stream)
            return
        with tempfile.TemporaryFile() as spooled:
            self._pack(path, entries, spooled)
            spooled.seek(0)
            receive(cast(BinaryIO, spooled))

    def put(self, path: str, stream: BinaryIO, mode: int) -> None:
        """Write one file atomically; its checksum is verified if the image has sha256sum.

        Raises:
            NotAllowed: it cannot be written.
        """
        with contextlib.ExitStack() as kept:
            source = stream if stream.seekable() else kept.enter_context(_spooled(stream))
            start, digest = source.tell(), hashlib.sha256()
            while data := source.read(_CHUNK_BYTES):
                digest.update(data)
            size = source.tell() - start
            source.seek(start)
            arguments = [str(size), path, f"{mode:o}", digest.hexdigest()]
            command = self._cluster.exec(
                self._pod, self._container, ["sh", "-c", _PUT, "sh", *arguments], stdin=True
            )
            while data := source.read(_CHUNK_BYTES):
                command.write(data)
            reader = OutputReader(command)
            reader.readall()
            if command.wait() != 0:
                stderr = reader.stderr.decode("utf-8", "replace").strip()
                raise NotAllowed(f"{path} cannot be written: {stderr or 'it did not arrive complete'}")

    def has(self, program: str) -> bool:
        """Return whether the image has a program."""
        script = f"command -v {program} >/dev/null 2>&1"
        return self._cluster.exec(self._pod, self._container, ["sh", "-c", script]).wait() == 0

    def _pack(self, path: str, entries: Sequence[FileEntry], target: BinaryIO) -> None:
        """Write the tar here, fetching file by file."""
        with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for entry in entries:
                member = tarfile.TarInfo(entry.path or posixpath.basename(path))
                member.mode, member.mtime = entry.mode, entry.modified_us // 1_000_000
                if entry.kind == "file":
                    with self._output_of(
                        'exec cat "$1"', posixpath.join(path, entry.path).rstrip("/")
                    ) as stream:
                        content = stream.read()
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
                elif entry.path:
                    member.type = tarfile.DIRTYPE if entry.kind == "folder" else tarfile.SYMTYPE
                    member.linkname = entry.target
                    tar.addfile(member)

    @contextmanager
    def _output_of(self, script: str, *arguments: str) -> Iterator[BinaryIO]:
        """Run a script and yield its output as a stream.

        Raises:
            BackendError: it failed; the message has its stderr.
        """
        stream = self._cluster.exec(self._pod, self._container, ["sh", "-c", script, "sh", *arguments])
        reader = OutputReader(stream)
        buffered = io.BufferedReader(reader, _CHUNK_BYTES)
        try:
            yield cast(BinaryIO, buffered)
            while buffered.read(_CHUNK_BYTES):
                pass
            if stream.wait() != 0:
                lines = reader.stderr.decode("utf-8", "replace").strip().splitlines()
                raise BackendError(
                    f"The container's files cannot be read: {lines[-1] if lines else 'no reason'}."
                )
        finally:
            stream.close()


def _spooled(stream: BinaryIO) -> BinaryIO:
    """Return a temporary file with a stream's content: its checksum goes before it."""
    spooled = tempfile.TemporaryFile()  # noqa: SIM115 # the caller closes it
    while data := stream.read(_CHUNK_BYTES):
        spooled.write(data)
    spooled.seek(0)
    return cast(BinaryIO, spooled)


def _entries(lines: Sequence[str], path: str) -> Iterator[FileEntry]:
    remaining = iter(lines)
    for line in remaining:
        fields = line.split(" ", 3)
        if len(fields) < 4:
            continue
        raw, name = int(fields[0], 16), fields[3]
        relative = "" if name in (".", path) else name.removeprefix("./")
        modified, mode = int(fields[2]) * 1_000_000, raw & 0o777
        if stat.S_ISREG(raw):
            yield FileEntry(relative, "file", int(fields[1]), modified, mode)
        elif stat.S_ISDIR(raw):
            yield FileEntry(relative, "folder", 0, modified, mode)
        elif stat.S_ISLNK(raw):
            yield FileEntry(relative, "link", 0, modified, mode, next(remaining, ""))
