"""What files a job has left, looked for in the reader's thread, never more of them than a person reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from screens.pages.rest import FoundFile
from workbench.paths import JobFolder
from workbench.store.database import Store

MOST: Final = 300


def found_files(folder: JobFolder) -> Callable[[Store], list[FoundFile]]:
    """Return the query for the files under results and checkpoints, the newest first."""

    def read(store: Store) -> list[FoundFile]:
        del store
        found = [*_below(folder.path, folder.results), *_below(folder.path, folder.checkpoints)]
        return sorted(found, key=lambda file: -file.changed_us)[:MOST]

    return read


def _below(root: Path, folder: Path) -> Iterator[FoundFile]:
    seen = 0
    for where, _, names in os.walk(folder):
        for name in names:
            path = Path(where) / name
            try:
                state = path.lstat()
            except OSError:  # gone meanwhile
                continue
            yield FoundFile(str(path.relative_to(root)), state.st_size, state.st_mtime_ns // 1000)
            seen += 1
            if seen >= 10 * MOST:
                return
