"""Puts a folder where the user wants it: whole or not at all, and over nothing without being told."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from workbench.errors import CannotWrite


def copy_folder(source: Path, target: Path, *, force: bool) -> Path:
    """Copy a folder to ``target``; links stay links. Return ``target``."""
    return write_folder(target, lambda place: _copy(source, place), force=force)


def write_folder(target: Path, write: Callable[[Path], object], *, force: bool) -> Path:
    """Have a folder written beside ``target`` and move it there when it is whole.

    Args:
        target: Where it goes.
        write: Fills the empty folder that it is given.
        force: Replace what is there.

    Raises:
        CannotWrite: something is there already, or the place takes no more; nothing is left half-made.
    """
    if _is_something(target) and not force:
        raise CannotWrite(f"{target} is there already", hint="--force replaces it; --to names another place")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise CannotWrite(f"cannot write {target}: {error.strerror}") from error
    try:
        new = beside / "new"
        new.mkdir()
        write(new)
        _swap(new, target, beside / "old")
    except OSError as error:
        raise CannotWrite(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return target


def _swap(new: Path, target: Path, old: Path) -> None:
    if _is_something(target):
        target.rename(old)
    try:
        new.rename(target)
    except OSError:
        if os.path.lexists(old):
            old.rename(target)
        raise


def _is_something(target: Path) -> bool:
    if target.is_dir() and not target.is_symlink():
        return any(target.iterdir())
    return os.path.lexists(target)


def _copy(source: Path, place: Path) -> None:
    shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True)
