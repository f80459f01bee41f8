"""Steps that processes of a trial take together: one that fails in a process fails in all, and leaves none waiting.

The process has its own error, and the others one that names it. What they exchange after the step is in step again. In
a step that is a block of the code, one that failed is at its end already: what it gives there answers what the others
exchange in the block, and one of them that waits for it in another way waits as long as that does.
"""

from __future__ import annotations

import contextlib
import pickle

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Any, Callable

    Exchange = Callable[[Any], Any]
    """A collective, such as ``allgather`` of a context: returns what all give, or what the first one gives."""


def act_together(exchange: Exchange, act: Callable[[], Any], failure: str, who: str = "rank %d") -> list[Any]:
    """Return what an action gives in each process, by rank.

    Args:
        exchange: gives to all what all have.
        act: what each process does by itself; it must not wait for another one.
        failure: how the error begins where it failed in another process.
        who: a process, for that error.

    Raises:
        BaseException: what the action raises in this process.
        RuntimeError: it failed in another one.
    """
    try:
        # Beforehand, as what cannot be given is an error like any other.
        given = pickle.dumps(act())
    except BaseException as error:
        fail_together(exchange, error)
        raise
    answers = exchange((given, ""))
    failed = ["%s: %s" % (who % rank, text) for rank, (_, text) in enumerate(answers) if text]
    if failed:
        raise RuntimeError("%s %s" % (failure, "; ".join(failed)))
    return [pickle.loads(data) for data, _ in answers]


def fail_together(exchange: Exchange, error: BaseException) -> None:
    """Give the others, who come to :func:`act_together`, the error of this process, which raises it then."""
    with contextlib.suppress(ConnectionError):
        exchange((b"", described(error)))


def act_first(broadcast: Exchange, is_first: bool, act: Callable[[], None], failure: str) -> None:
    """Have the first process act, and the others wait for it.

    Args:
        broadcast: gives to all what the first one has.
        is_first: whether this process is it.
        act: what it does by itself.
        failure: how the error of the others begins where it failed.

    Raises:
        BaseException: what the action raises, in the first process.
        RuntimeError: it failed, in another one.
    """
    if not is_first:
        text = broadcast(None)
        if text:
            raise RuntimeError("%s %s" % (failure, text))
        return
    try:
        act()
    except BaseException as error:
        with contextlib.suppress(ConnectionError):
            broadcast(described(error))
        raise
    broadcast("")


def described(error: BaseException) -> str:
    """Return the name of an error and its text, if it can give one: the others wait for this."""
    try:
        text = str(error)
    except Exception as another:
        text = "its text cannot be had for a %s" % type(another).__name__
    return "%s: %s" % (type(error).__name__, text)
