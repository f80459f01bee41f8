"""Converts failures of host operations to fabric's errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from workbench.errors import (
    BackendError,
    BackendUnreachable,
    CannotWrite,
    FabricError,
    InputMissing,
    NotAllowed,
    TryAgain,
)
from workbench.learner.platform.errors import Failure, of_os_error

_KINDS: Final[Mapping[str, type[FabricError]]] = {
    "missing": InputMissing,
    "bad_input": InputMissing,
    "cannot_write": CannotWrite,
    "not_allowed": NotAllowed,
    "try_again": TryAgain,
    "unanswered": BackendUnreachable,
}


def error_of(kind: str, message: str, hint: str = "") -> FabricError:
    """Return the FabricError for a failure's ``kind``, as the agent's frames have it; BackendError for other kinds."""
    return _KINDS.get(kind, BackendError)(message, hint=hint)


@contextmanager
def translated() -> Iterator[None]:
    """Raise a ``Failure`` or ``OSError`` of the body as a FabricError."""
    try:
        yield
    except Failure as failure:
        raise error_of(failure.kind, failure.message, failure.hint) from failure
    except OSError as error:
        failure_of_os = of_os_error(error)
        raise error_of(failure_of_os.kind, failure_of_os.message, failure_of_os.hint) from error
