"""Files that are written whole or not at all, and large ones that go on where they were cut off."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
from io import FileIO
from typing import Mapping, Optional, Tuple

from workbench.learner.platform.errors import Failure
from workbench.learner.platform.files import make_folders

CHUNK_BYTES = 256 * 1024


def write_files(files: Mapping[str, str], mode: int = 0o600) -> None:
    """Write small files, each whole or not at all, their folders with them."""
    for path, text in files.items():
        with Upload(path, "", mode) as upload:
            upload.write(text.encode())
            upload.finish(durable=False)


class Upload:
    """A file that is being written beside its place, and goes there by rename when it is whole.

    With a ``sha256`` what an interrupted upload left is kept: :attr:`offset` says where to go on (-1: it
    is there).
    """

    def __init__(self, path: str, sha256: str, mode: int = 0o600) -> None:
        self._path = path
        self._sha256 = sha256
        self._digest = hashlib.sha256()
        self._stream: Optional[FileIO] = None
        self.offset = 0
        if sha256 and _is_there(path, sha256):
            self.offset = -1
            return
        make_folders([os.path.dirname(path)])
        self._stream, self._beside = self._begin(mode)
        if sha256:
            self._read_what_is_there()

    def write(self, data: bytes) -> None:
        """Append bytes."""
        if self._stream is not None:
            self._digest.update(data)
            self._stream.write(data)

    def finish(self, *, durable: bool = True) -> None:
        """Put the file into its place; ``durable`` waits until a power cut would not take it.

        Raises:
            Failure: the bytes are not those that were announced; nothing is left of them.
        """
        if self._stream is None:
            return
        if self._sha256 and self._digest.hexdigest() != self._sha256:
            self._drop()
            raise Failure("bad_input", f"What arrived of {self._path} is not what was sent.", "Try again.")
        if durable:
            os.fsync(self._stream.fileno())
        os.rename(self._beside, self._path)
        self._stream.close()
        self._stream = None

    def __enter__(self) -> Upload:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is None:
            return
        if self._sha256:
            self._stream.close()  # what is there is kept, for the next try to go on from
            self._stream = None
        else:
            self._drop()

    def _begin(self, mode: int) -> Tuple[FileIO, str]:
        folder, name = os.path.split(self._path)
        if self._sha256:
            beside = os.path.join(folder, f".{name}.{self._sha256[:16]}.part")
            stream = open(beside, "a+b", buffering=0)  # noqa: SIM115 - closed when the upload is
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # It may have been finished, and renamed, between the open and the lock.
                if os.path.exists(beside) and os.path.samestat(os.fstat(stream.fileno()), os.stat(beside)):
                    os.fchmod(stream.fileno(), mode)
                    return stream, beside
            except BlockingIOError:
                pass  # somebody else is sending the same
            stream.close()
        descriptor, beside = tempfile.mkstemp(prefix=f".{name[:100]}.", suffix=".part", dir=folder)
        os.fchmod(descriptor, mode)
        return open(descriptor, "w+b", buffering=0), beside

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
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._beside)


def _is_there(path: str, sha256: str) -> bool:
    if not os.path.isfile(path):
        return False
    if os.path.basename(path).startswith(sha256):
        return True  # it got that name by rename when it was whole
    return _sha256_of(path) == sha256


def _sha256_of(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for data in iter(lambda: stream.read(CHUNK_BYTES), b""):
            digest.update(data)
    return digest.hexdigest()
