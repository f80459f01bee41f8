"""The error of operations on a host: it crosses the pipe as three texts."""

from __future__ import annotations

import contextlib
import errno
from typing import Iterator, Mapping

_KINDS: Mapping[int, str] = {
    errno.ENOENT: "missing",
    errno.ENOTDIR: "missing",
    errno.EISDIR: "missing",
    errno.ENOSPC: "cannot_write",
    errno.EDQUOT: "cannot_write",
    errno.EROFS: "cannot_write",
    errno.EFBIG: "cannot_write",
    errno.EACCES: "not_allowed",
    errno.EPERM: "not_allowed",
}


class Failure(Exception):
    """Something on the host did not work: what kind, a sentence for the user, and what to do."""

    def __init__(self, kind: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        """``missing``, ``cannot_write``, ``not_allowed``, ``try_again``, ``timeout``, ``bad_input`` ..."""
        self.message = message
        self.hint = hint


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Let errors of the operating system name this path where they name none: writing does not."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.strerror:
            error.filename = path
        raise


def of_os_error(error: OSError) -> Failure:
    """Say an error of the operating system in a sentence."""
    subject = f"{error.filename}: " if error.filename else ""
    text = error.strerror or str(error)
    return Failure(_KINDS.get(error.errno or 0, "failed"), f"{subject}{text}.")
