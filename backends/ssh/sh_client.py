"""The client of a shell on a host that has nothing else: sends scripts and reads what they print."""

from __future__ import annotations

import base64
import contextlib
import os
import shlex
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from backends.ssh.connection import Pipe
from workbench.errors import BackendError, BackendUnreachable
from workbench.values import dataclass

ANSWER_SECONDS: Final = 30.0
SEND_BYTES: Final = 48 * 1024
"""What one script carries of a file: shells keep such texts in memory."""

PIECE_SECONDS: Final = 0.25
"""So long may one piece of bulk data take on its way: what else is asked for waits behind it."""
LEAST_BYTES: Final = 1 << 16
MOST_BYTES: Final = 1 << 20
"""Bounds of a piece."""

_READ_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class ScriptResult:
    """What a script printed, and how it ended."""

    exit_code: int
    output: bytes


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a file from an offset, and its size."""

    data: bytes
    size: int


class Turns:
    """Lets one thread at a time; those with bulk data after all others."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_taken = False
        self._waiting = 0

    @contextlib.contextmanager
    def take(self, *, bulk: bool) -> Iterator[None]:
        """Wait for one's turn, and hold it."""
        with self._changed:
            self._waiting += not bulk
            try:
                self._changed.wait_for(lambda: not self._is_taken and not (bulk and self._waiting))
                self._is_taken = True
            finally:
                self._waiting -= not bulk
        try:
            yield
        finally:
            with self._changed:
                self._is_taken = False
                self._changed.notify_all()


class ShellClient:
    """Runs scripts in one shell, one at a time; thread-safe. They have no terminal, and their stdin is empty.

    Bulk data goes in pieces of ``piece_bytes``, and what else is asked for, a stop say, goes between two of them.
    """

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self._turns = Turns()
        self._mark = b"fabric-" + os.urandom(12).hex().encode()
        self._rest = b""
        self.lost = False
        self.piece_bytes = LEAST_BYTES
        """How much the link carried lately in the time that a piece may take."""

    def sh(self, script: str, *, seconds: float = ANSWER_SECONDS, bulk: bool = False) -> ScriptResult:
        """Run a script and return what it printed; ``bulk`` lets all others go first.

        Raises:
            BackendUnreachable: the connection is lost, or there was no answer in time.
        """
        mark = self._mark.decode()
        text = f"{{ {script}\n}} </dev/null 2>/dev/null; printf '\\n%s %d\\n' {mark} $?\n"
        with self._turns.take(bulk=bulk):
            late = threading.Timer(seconds, self.pipe.close)
            late.daemon = True
            late.start()
            try:
                if self.lost:
                    raise OSError("it is lost")
                began = time.monotonic()
                self.pipe.writer.write(text.encode())
                self.pipe.writer.flush()
                answer = self._answer()
                if bulk:
                    self._measured(len(answer.output), time.monotonic() - began)
                return answer
            except (OSError, ValueError) as error:
                self.lost = True
                why = self.pipe.explain() or str(error)
                raise BackendUnreachable(f"The connection to the backend was lost: {why}.") from error
            finally:
                late.cancel()

    def check(self, script: str, *, seconds: float = ANSWER_SECONDS, bulk: bool = False) -> bytes:
        """The same; what fails raises BackendError."""
        answer = self.sh(script, seconds=seconds, bulk=bulk)
        if answer.exit_code:
            lines = answer.output.decode("utf-8", "replace").strip().splitlines()
            raise BackendError(
                f"The shell there says: {lines[-1] if lines else f'exit code {answer.exit_code}'}."
            )
        return answer.output

    def lines(self, script: str) -> list[str]:
        """Run a script and return the lines that it printed."""
        return self.check(script).decode("utf-8", "surrogateescape").splitlines()

    def pieces(self, requests: Sequence[tuple[str, int, int]], *, bulk: bool = False) -> list[Piece | None]:
        """Read files, each as path, offset and the most bytes; None for one that is not there."""
        if not requests:
            return []
        script = "".join(
            f'f={quoted(path)}; if [ -f "$f" ]; then s=$(wc -c <"$f"); s=$((s)); n=$((s-{offset})); '
            f"[ $n -gt {most} ] && n={most}; [ $n -lt 0 ] && n=0; echo $s $n; "
            f'[ $n -gt 0 ] && tail -c +{offset + 1} "$f" | head -c $n; else echo -1 0; fi\n'
            for path, offset, most in requests
        )
        data = self.check(script + "true", bulk=bulk)
        found: list[Piece | None] = []
        for _ in requests:
            line, _, data = data.partition(b"\n")
            size, count = (int(word) for word in line.split())
            found.append(None if size < 0 else Piece(data[:count], size))
            data = data[count:]
        return found

    def write(self, path: str, parts: Iterable[bytes], mode: int) -> None:
        """Write a file, whole or not at all."""
        folder, temporary = path.rpartition("/")[0], f"{path}.new-{os.urandom(6).hex()}"
        self.check(f"umask 077; mkdir -p {quoted(folder)} && : >{quoted(temporary)}")
        try:
            for part in parts:
                for start in range(0, len(part), SEND_BYTES):
                    self._append(temporary, part[start : start + SEND_BYTES])
            self.check(f"chmod {mode:o} {quoted(temporary)} && mv -f {quoted(temporary)} {quoted(path)}")
        except BaseException:
            with contextlib.suppress(BackendUnreachable):
                self.sh(f"rm -f {quoted(temporary)}")
            raise

    def _append(self, path: str, data: bytes) -> None:
        text = base64.encodebytes(data).decode()
        self.check(f"base64 -d >>{quoted(path)} <<'EOT'\n{text}EOT\n", bulk=True)

    def _measured(self, count: int, seconds: float) -> None:
        if 2 * count >= self.piece_bytes:
            self.piece_bytes = int(
                min(max(count / max(seconds, 1e-6) * PIECE_SECONDS, LEAST_BYTES), MOST_BYTES)
            )

    def _answer(self) -> ScriptResult:
        """Read up to the mark."""
        data, mark = bytearray(self._rest), b"\n" + self._mark + b" "
        searched = 0
        while True:
            at = data.find(mark, max(0, searched - len(mark)))
            end = data.find(b"\n", at + len(mark)) if at >= 0 else -1
            if end >= 0:
                self._rest = bytes(data[end + 1 :])
                return ScriptResult(int(data[at + len(mark) : end]), bytes(data[:at]))
            searched = len(data)
            more = self.pipe.reader.read1(_READ_BYTES)  # type: ignore[attr-defined] # both pipes are buffered
            if not more:
                raise OSError("the shell there ended")
            data += more


def quoted(text: str) -> str:
    """Return a word as every shell takes it."""
    return shlex.quote(text)


def quoted_all(words: Iterable[str]) -> str:
    """Return words as every shell takes them."""
    return " ".join(quoted(word) for word in words)


def assignments(env: Mapping[str, str]) -> str:
    """Return variables as arguments of ``env``."""
    return quoted_all(f"{name}={value}" for name, value in env.items())
