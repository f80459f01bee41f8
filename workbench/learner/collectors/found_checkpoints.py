"""Finds checkpoints that nobody reports, by what their files and folders are called, once they are whole."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from workbench.learner.collectors.interface import Context, Record
from workbench.learner.collectors.sources import job_folders
from workbench.learner.platform import beneath
from workbench.learner.texts import expression

FOLDERS = ("CHECKPOINT_DIR", "RESULT_DIR")
DEPTH = 5
FOLDERS_LIMIT = 200
FILES_LIMIT = 2000
"""Files of one checkpoint that are looked at."""

QUIET_SECONDS = 2.0
"""How long a checkpoint is unchanged before it is whole; who reports it himself has done so by then."""
_SEARCH_SECONDS = 1.0
_COST_SHARE = 100
_AGAIN_SECONDS = 30.0
"""How often one that is written again and again under one name is reported."""

_TICK_US = 10_000
"""So far back may the time be that a file system gives a file: it is that of a tick of the kernel's clock."""

_SUFFIXES = (".ckpt", ".pt", ".pth", ".safetensors", ".keras", ".weights.h5", ".h5", ".ubj")
_ZIPPED = (".ckpt", ".pt", ".pth", ".keras")
_PARTS = (*_SUFFIXES, ".bin", ".distcp", ".msgpack", ".npz", ".pb", ".index", ".orbax", ".zarr")
_MARKERS = (
    "_CHECKPOINT_METADATA",
    "_METADATA",
    "checkpoint_metadata",
    "commit_success.txt",
    "saved_model.pb",
)
"""Files that orbax and Keras write into a folder that is a checkpoint."""
_OUR_MARKS = ("metadata.json", "fabric-metadata.json")
_UNFINISHED = expression(r"(?i)(?:^|[._-])(?:tmp|temp|partial|incomplete)(?:[._-]|$)|orbax-checkpoint-tmp")

_FOLDER_NAME = expression(
    r"(?i)(?:checkpoint|ckpt|step|epoch|iter|iteration|model)[-_=]?\d+|global_?step[-_=]?\d+"
)
_STEP = expression(r"(?i)(?:global_?step|step|iter(?:ation)?|checkpoint|ckpt)s?[-_=]?(\d+)")
_EPOCH = expression(r"(?i)epoch[-_=]?(\d+)")
_NUMBER = expression(r"(?:^|[-_=. ])(\d+)(?=$|[-_. ])")
_SHARD = expression(r"-\d+-of-\d+")
_METRIC = expression(r"([A-Za-z][A-Za-z0-9_/]*)=(-?\d+\.\d+(?:[eE][-+]?\d+)?)")
_UNNUMBERED = expression(r"(?i)^(?:last|latest|best|final)(?:[-_](?:model|checkpoint|ckpt|weights))?$|"
                         r"^(?:model|checkpoint|ckpt|weights)[-_](?:last|latest|best|final)$")  # fmt: skip
_TAIL_BYTES = 66_000
_HEADER_LIMIT = 100 << 20
_TRAINER_STATE = "trainer_state.json"
"""What Hugging Face's Trainer measured so far, in each of its checkpoints."""
_TRAINER_STATE_LIMIT = 32 << 20


class _Found(NamedTuple):
    path: str
    step: Optional[int]
    metrics: Dict[str, float]
    is_numbered: bool


class _Seen(NamedTuple):
    signature: Tuple[int, ...]
    since: float


class _Look(NamedTuple):
    """What a look at a checkpoint's files showed."""

    signature: Tuple[int, ...]
    newest_us: int
    size_bytes: int
    files: List[str]


class FoundCheckpoints:
    """The checkpoints of one learner that its code does not report.

    Args:
        context: what is known of the learner.
        report: the file in which its code reports; those that are found are appended to it.
    """

    def __init__(self, context: Context, report: str) -> None:
        self._report = report
        self._writable = context.writable
        self._since_us = context.begin_us()
        self._roots = [path for _name, path in job_folders(context, FOLDERS)]
        self._seen: Dict[str, _Seen] = {}
        self._is_waiting = False
        self._searched_at = 0.0
        self._cost_seconds = 0.0
        self._report_read = 0
        self._reported: Dict[str, int] = {}
        """When each path was reported, by whomever."""

    @property
    def waiting(self) -> bool:
        """Whether one was seen that may be whole soon."""
        return self._is_waiting

    def search(self, *, ended: bool = False) -> int:
        """Report those that are whole; return how many. ``ended``: nothing is written any more."""
        begun = time.monotonic()
        pause = max(_SEARCH_SECONDS, self._cost_seconds * _COST_SHARE)
        if not self._roots or (begun - self._searched_at < pause and not ended):
            return 0
        self._read_reports()
        looked = ((found, self._whole(found, begun, ended=ended)) for found in self._candidates())
        whole = [(look, found) for found, look in looked if look is not None]
        for look, found in sorted(whole, key=_age):
            self._append(found, look)
        self._searched_at = time.monotonic()
        self._cost_seconds = self._searched_at - begun
        return len(whole)

    def _candidates(self) -> Iterator[_Found]:
        self._is_waiting = False
        for root in self._roots:
            with contextlib.suppress(OSError), beneath.opened(root, self._writable) as (opened, inside):
                left = FOLDERS_LIMIT
                for below, descriptor, folders, files in opened.walk(inside):
                    left -= 1
                    here = os.path.join(root, below) if below else root
                    chosen = [name for name in folders if self._is_folder(opened, inside, below, name)]
                    for name in sorted(chosen):
                        yield _described(os.path.join(here, name), name)
                    folders[:] = [name for name in folders if name not in chosen and not _is_unfinished(name)]
                    if left <= 0 or below.count(os.sep) + bool(below) >= DEPTH:
                        folders[:] = []
                    for name in sorted(files):
                        if _is_file(name) and _is_regular(name, descriptor):
                            yield _described(os.path.join(here, name), _stem(name))

    def _is_folder(self, opened: beneath.Root, inside: str, below: str, name: str) -> bool:
        is_number = name.isdigit()
        if _is_unfinished(name) or not (is_number or _FOLDER_NAME.search(name)):
            return False
        try:
            descriptor = opened.open_folder(os.path.join(inside, below, name), follow=False)
        except OSError:
            return False
        try:
            names = os.listdir(descriptor)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return any(one in _MARKERS or (not is_number and one.endswith(_PARTS)) for one in names)

    def _whole(self, found: _Found, now: float, *, ended: bool) -> Optional[_Look]:
        """Return what a checkpoint consists of once it is whole, and is to be reported; else None."""
        reported_us = self._reported.get(found.path)
        if reported_us is None and any(
            _is_below(found.path, other) or _is_below(other, found.path) for other in self._reported
        ):
            return None  # reported as a part of another, or with its parts
        try:
            look = self._look(found.path)
        except OSError:
            return None
        if not look.files or look.newest_us < self._since_us:
            return None
        if reported_us is not None:
            again_us = 0 if ended else int(_AGAIN_SECONDS * 1e6)
            if look.newest_us <= reported_us or look.newest_us < reported_us + again_us:
                return None
        seen = self._seen.get(found.path)
        if seen is None or seen.signature != look.signature:
            seen = self._seen[found.path] = _Seen(look.signature, now)
        if not ended and now - seen.since < QUIET_SECONDS:
            self._is_waiting = True
            return None
        return look if all(self._is_intact(path) for path in look.files) else None

    def _look(self, path: str) -> _Look:
        """Look at a checkpoint's files.

        Raises:
            OSError: it cannot be read.
        """
        files: List[str] = []
        total = newest_ns = 0
        with beneath.opened(os.path.dirname(path), self._writable) as (root, inside):
            own = os.path.join(inside, os.path.basename(path))
            status = root.stat(own, follow=False)
            if stat.S_ISREG(status.st_mode):
                signature = (status.st_size, status.st_mtime_ns)
                return _Look(signature, status.st_mtime_ns // 1000, status.st_size, [path])
            for below, descriptor, _folders, names in root.walk(own):
                for name in names:
                    about = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                    if name in _OUR_MARKS or not stat.S_ISREG(about.st_mode) or len(files) >= FILES_LIMIT:
                        continue
                    files.append(os.path.join(path, below, name))
                    total += about.st_size
                    newest_ns = max(newest_ns, about.st_mtime_ns)
        return _Look((len(files), total, newest_ns), newest_ns // 1000, total, files)

    def _is_intact(self, path: str) -> bool:
        """Whether a file is not cut off, where its format says it; of others it is taken to be whole."""
        try:
            with open(beneath.open_plainly(path, self._writable), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if path.endswith(".safetensors"):
                    return _safetensors_bytes(file) == size
                if path.endswith(_ZIPPED):
                    if file.read(2) != b"PK":
                        return size > 0
                    file.seek(max(0, size - _TAIL_BYTES))
                    return b"PK\x05\x06" in file.read()
                return True
        except (OSError, ValueError):
            return False

    def _read_reports(self) -> None:
        """Learn what is reported already: by the code itself, or here before a restart."""
        try:
            with open(self._report, "rb") as file:
                file.seek(self._report_read)
                data = file.read()
        except OSError:
            return
        whole = data.rfind(b"\n") + 1
        self._report_read += whole
        for line in data[:whole].splitlines():
            if b'"checkpoint"' not in line:
                continue
            try:
                record = json.loads(line)
                if record.get("kind") == "checkpoint":
                    self._reported[os.path.normpath(str(record["path"]))] = int(record.get("time") or 0)
            except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
                continue

    def _measured(self, look: _Look, step: Optional[int]) -> Dict[str, float]:
        """Return what Hugging Face's Trainer measured at the step of a checkpoint, by its own names."""
        path = next((path for path in look.files if os.path.basename(path) == _TRAINER_STATE), "")
        if not path or step is None:
            return {}
        try:
            with open(beneath.open_plainly(path, self._writable), "rb") as file:
                history = json.loads(file.read(_TRAINER_STATE_LIMIT)).get("log_history")
            measured = [entry for entry in history if entry.get("step") == step]
        except (OSError, ValueError, AttributeError, TypeError, RecursionError):
            return {}
        return {
            str(name): float(value)
            for entry in measured
            for name, value in entry.items()
            if type(value) in (int, float) and name not in ("step", "epoch", "total_flos")
        }

    def _append(self, found: _Found, look: _Look) -> None:
        now_us = time.time_ns() // 1000
        record: Record = {
            "kind": "checkpoint",
            "path": found.path,
            "step": found.step,
            "metrics": {**self._measured(look, found.step), **found.metrics},
            "metadata": {
                "found": "numbered" if found.is_numbered else "unnumbered",
                "size_bytes": look.size_bytes,
            },
            # When it was written, and not when it was found to be whole: what was measured in between came later.
            "time": min(look.newest_us + _TICK_US, now_us),
        }
        with contextlib.suppress(OSError):
            descriptor = os.open(
                self._report, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600
            )
            try:
                os.write(descriptor, json.dumps(record).encode() + b"\n")
                self._reported[found.path] = now_us
            finally:
                os.close(descriptor)


def _age(one: Tuple[_Look, _Found]) -> Tuple[int, bool, int]:
    """Order checkpoints by age: the last one that is reported is what a job goes on from.

    A folder gives step-100 before step-20. Files that are written within one tick of the file system's clock have one
    time: then one without a number, as ``last.pt``, is the newest, since it is written after the one that it repeats.
    """
    look, found = one
    return look.newest_us, found.step is None, found.step or 0


def _described(path: str, name: str) -> _Found:
    matches: Mapping[str, Any] = {"step": _STEP.findall(name), "epoch": _EPOCH.findall(name)}
    bare = _METRIC.sub("", name)
    numbers = matches["step"] or matches["epoch"] or _NUMBER.findall(bare)
    step = int(numbers[-1]) if numbers and len(numbers[-1]) <= 15 else None
    metrics = {metric: float(value) for metric, value in _METRIC.findall(name)}
    return _Found(path, step, metrics, step is not None)


def _is_file(name: str) -> bool:
    if not name.endswith(_SUFFIXES) or name.startswith(".") or _is_unfinished(name) or _SHARD.search(name):
        return False
    stem = _stem(name)
    found = _STEP.search(stem) or _EPOCH.search(stem) or _NUMBER.search(_METRIC.sub("", stem))
    return bool(found) or _UNNUMBERED.match(stem) is not None


def _stem(name: str) -> str:
    return next(name[: -len(suffix)] for suffix in (".weights.h5", *_SUFFIXES) if name.endswith(suffix))


def _is_unfinished(name: str) -> bool:
    return name.startswith(".") or _UNFINISHED.search(name) is not None


def _is_regular(name: str, folder: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder + os.sep) or path == folder


def _safetensors_bytes(file: Any) -> int:
    length = int.from_bytes(file.read(8), "little")
    if length > _HEADER_LIMIT:
        return -1
    header = json.loads(file.read(length))
    ends = [int(entry["data_offsets"][1]) for name, entry in header.items() if name != "__metadata__"]
    return 8 + length + max(ends, default=0)
