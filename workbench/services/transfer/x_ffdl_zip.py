"""FfDL's downloads: a job's code or results as one zip, named after the job."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from workbench.errors import CannotWrite, UsageError


def download_zips(
    job: str, chosen: Sequence[tuple[str, str]], filename: str, *, force: bool, json: bool
) -> None:
    """Write a zip for each part of a job: what is fetched, and FfDL's word for it.

    Raises:
        UsageError: one name is given for two files.
        CannotWrite: a file is there already, or cannot be written.
    """
    from workbench.services.open_store import store_with
    from workbench.services.transfer.download import Wanted, fetch

    if filename and len(chosen) > 1:
        raise UsageError("--filename is one file; ask for one of them at a time")
    written: dict[str, Path] = {}
    with store_with(job) as (store, row), tempfile.TemporaryDirectory(prefix="fabric-zip-") as scratch:
        for kind, word in chosen:
            target = Path(filename or f"{row.id}-{word}.zip")
            if target.exists() and not force:
                raise CannotWrite(f"{target} is there already", hint="--force replaces it")
            folder = fetch(store, row, kind, Path(scratch) / kind, Wanted((), force=False, shown=not json))
            written[word] = _zipped(folder, target)
    if json:
        from workbench.terminal.json_output import print_document

        files = {word: str(path.absolute()) for word, path in written.items()}
        print_document({"schema": "fabric.download/1", "id": row.id, "files": files})
        return
    for path in written.values():
        print(path)


def _zipped(folder: Path, target: Path) -> Path:
    """Make the zip beside its place first, so that it is whole or not there."""
    try:
        with tempfile.TemporaryDirectory(prefix=".fabric-", dir=target.absolute().parent) as beside:
            made = shutil.make_archive(str(Path(beside) / "files"), "zip", root_dir=folder)
            Path(made).replace(target)
    except OSError as error:
        raise CannotWrite(f"{target} cannot be written: {error.strerror}") from error
    return target
