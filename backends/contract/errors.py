"""Turns what failed at a place into one of fabric's errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from workbench.errors import BackendError, CannotWrite, FabricError, InputMissing, NotAllowed, TryAgain
from workbench.learner.platform.errors import Failure, of_os_error

_KINDS: Final[Mapping[str, type[FabricError]]] = {
    "missing": InputMissing,
    "bad_input": InputMissing,
    "cannot_write": CannotWrite,
    "not_allowed": NotAllowed,
    "try_again": TryAgain,
}


def error_of(kind: str, message: str, hint: str = "") -> FabricError:
    """Return the error of ours that stands for a failure of that kind."""
    return _KINDS.get(kind, BackendError)(message, hint=hint)


@contextmanager
def translated() -> Iterator[None]:
    """Raise what fails at the place as an error of ours."""
    try:
        yield
    except Failure as failure:
        raise error_of(failure.kind, failure.message, failure.hint) from failure
    except OSError as error:
        said = of_os_error(error)
        raise error_of(said.kind, said.message, said.hint) from error
