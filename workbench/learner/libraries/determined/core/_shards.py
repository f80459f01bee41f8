"""The parts of a sharded checkpoint from machines that do not share the first one's folder: they send them to rank 0.

So a checkpoint is whole where it is reported, whatever the machines share.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import tempfile
from pathlib import Path

from ._agreement import described

TYPE_CHECKING = False  # the real one costs the import of typing
if TYPE_CHECKING:
    from typing import Callable, Iterator

    from ._distributed import DistributedContext

PART_BYTES = 1 << 22
_ARRIVING = ".arriving"


def folder_for_parts(distributed: DistributedContext, path: Path) -> Path | None:
    """Return a folder of this machine's own for its parts; None where it sees that of rank 0, which is there already.

    All processes call it.

    Raises:
        OSError: it cannot be made; all processes of the machine have this error.
    """
    if distributed.cross_rank == 0:
        return None
    made, error = "", None
    if distributed.local_rank == 0 and not path.is_dir():
        try:
            made = os.path.join(tempfile.mkdtemp(prefix="checkpoint-"), path.name)
            os.mkdir(made)
        except OSError as caught:
            error = caught
        except BaseException as caught:
            # The others of the machine wait for it, and it will wait for them.
            distributed.broadcast_local(("", RuntimeError(described(caught))))
            raise
    made, error = distributed.broadcast_local((made, error))
    if error is not None:
        raise error
    return Path(made) if made else None


def remove_parts(distributed: DistributedContext, parts: Path | None) -> None:
    """Remove what :func:`folder_for_parts` made."""
    if parts is not None and distributed.local_rank == 0:
        shutil.rmtree(str(parts.parent), ignore_errors=True)


def collect_parts(distributed: DistributedContext, path: Path, parts: Path | None) -> None:
    """Have all parts of other machines in rank 0's folder. All processes call it.

    Raises:
        RuntimeError: two machines give different files of one name, or a file could not be read or written. All have
            this error, as what is sent is received to its end.
    """
    sends = parts is not None and distributed.local_rank == 0
    senders = [rank for rank, each in enumerate(distributed.allgather(sends)) if each]
    problems: list[str] = []
    if distributed.rank == 0:
        for rank in senders:
            problems += _received(distributed, rank, path)
    elif sends:
        _send(distributed, str(parts))
    problems = distributed.broadcast(problems)
    if problems:
        raise RuntimeError("the parts of the checkpoint could not be put together: %s" % "; ".join(problems))


def _send(distributed: DistributedContext, source: str) -> None:
    problems: list[str] = []
    try:
        for parent, folders, files in walk(source, lambda error: problems.append(str(error))):
            inside = os.path.relpath(parent, source)
            for name in folders:
                distributed.send(0, pickle.dumps(("folder", os.path.normpath(os.path.join(inside, name)))))
            for name in files:
                distributed.send(0, pickle.dumps(("file", os.path.normpath(os.path.join(inside, name)))))
                _send_file(distributed, os.path.join(parent, name), problems)
    except ConnectionError:
        raise
    except Exception as error:
        problems.append(_problem(error))
    distributed.send(0, pickle.dumps(("end", "; ".join(problems))))


def _send_file(distributed: DistributedContext, path: str, problems: list[str]) -> None:
    try:
        with open(path, "rb") as file:
            for part in iter(lambda: file.read(PART_BYTES), b""):
                distributed.send(0, part)
    except ConnectionError:
        raise
    except Exception as error:
        problems.append(_problem(error))
    distributed.send(0, b"")


def _problem(error: Exception) -> str:
    return str(error) if isinstance(error, OSError) else described(error)


def walk(
    source: str, on_error: Callable[[OSError], None] | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield what ``os.walk`` does, through links, but for links to a folder that the walk came through or lies in.

    Args:
        source: the folder.
        on_error: is given the error of each folder that cannot be read; None for passing over it.
    """
    through: dict[str, tuple[str, ...]] = {source: (os.path.realpath(source),)}
    """Of each folder, the real paths of all that lead to it, itself included."""
    for parent, folders, files in os.walk(source, onerror=on_error, followlinks=True):
        came = through.pop(parent)
        kept = []
        for name in folders:
            path = os.path.join(parent, name)
            real = os.path.realpath(path)
            if any(each == real or each.startswith(real.rstrip("/") + "/") for each in came):
                continue
            kept.append(name)
            through[path] = (*came, real)
        folders[:] = kept
        yield parent, folders, files


def _received(distributed: DistributedContext, rank: int, path: Path) -> list[str]:
    """Write what a machine sends; return what was wrong. All of it is taken, since the machine sends it in any case."""
    problems: list[str] = []
    while True:
        kind, name = pickle.loads(distributed.receive(rank))
        if kind == "end":
            return problems + ([name] if name else [])
        try:
            if kind == "folder":
                (path / name).mkdir(parents=True, exist_ok=True)
            else:
                _write(distributed, rank, path, name)
        except ConnectionError:
            raise
        except Exception as error:
            text = (isinstance(error, OSError) and error.strerror) or _problem(error)
            problems.append("%s of rank %d: %s" % (name, rank, text))


def _write(distributed: DistributedContext, rank: int, path: Path, name: str) -> None:
    """Write a file of another machine.

    Raises:
        Exception: it cannot be written, or there is another one of its name; it has been received all the same.
    """
    arriving, target = path / _ARRIVING, path / name
    parts = iter(lambda: distributed.receive(rank), b"")
    try:
        digest = hashlib.sha256()
        with open(str(arriving), "wb") as file:
            for part in parts:
                digest.update(part)
                file.write(part)
    except ConnectionError:
        raise
    except Exception:
        for _ in parts:
            pass
        raise
    if target.is_file() and _digest(target) == digest.digest():
        arriving.unlink()
        return
    if target.exists():
        arriving.unlink()
        raise FileExistsError(None, "another process gives a different file of this name")
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(str(arriving), str(target))


def _digest(path: Path) -> bytes:
    digest = hashlib.sha256()
    with open(str(path), "rb") as file:
        for part in iter(lambda: file.read(PART_BYTES), b""):
            digest.update(part)
    return digest.digest()
