"""How far a copy is, as a line at the foot of the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from workbench.formats import duration, size

if TYPE_CHECKING:
    from workbench.data.stores.transfer import Progress, Tell


@contextmanager
def copy_line(what: str, *, shown: bool = True) -> Iterator[Tell | None]:
    """Give what takes a copy's progress; nothing where stderr is no terminal, or it is not to be shown."""
    import sys

    from workbench.terminal.console import is_terminal

    if not shown or not is_terminal(sys.stderr):
        yield None
        return
    from workbench.terminal.status_line import StatusLine

    line = StatusLine()
    try:
        yield lambda progress: line.draw(f"{what}: {words_of(progress)}")
    finally:
        line.clear()


def words_of(progress: Progress) -> str:
    """Say how far a copy is: ``42 %, 1.2 GiB of 2.9 GiB, 110 MiB/s, 15 s left``."""
    said = [f"{size(progress.done_bytes)} of {size(progress.total_bytes)}"]
    if progress.total_bytes:
        said.insert(0, f"{100 * progress.done_bytes // progress.total_bytes} %")
    if progress.bytes_per_second > 0:
        said.append(f"{size(int(progress.bytes_per_second))}/s")
    if progress.seconds_left is not None:
        said.append(f"{duration(progress.seconds_left)} left")
    return ", ".join(said)
