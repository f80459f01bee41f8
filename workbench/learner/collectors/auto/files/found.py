"""Finds files of metrics in a job's folders, and reads them as they grow."""

from __future__ import annotations

import os
import stat
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from workbench.learner.collectors.auto.files.rewritten import RewrittenFile, Versions
from workbench.learner.collectors.auto.files.rows import (
    MlflowStream,
    RowStream,
    Table,
    has_metrics,
    history_lines,
    json_row,
    table_lines,
)
from workbench.learner.collectors.auto.files.series import Owners, is_series, joined, phase_of
from workbench.learner.collectors.batches import Position
from workbench.learner.collectors.followed_file import FollowedFile
from workbench.learner.collectors.interface import Context, Record
from workbench.learner.collectors.sources import job_folders, run_labels, without_learners
from workbench.learner.collectors.streams import Stream, StreamCollector, StreamSource, key_of
from workbench.learner.platform import beneath
from workbench.learner.texts import clean_name, expression

FOLDERS = ("LOG_DIR", "RESULT_DIR", "CHECKPOINT_DIR", "MODEL_DIR")
"""Variables of the folders that are searched; the last one is where the command runs."""
OWN_FOLDER = "MODEL_DIR"

DEPTH = 6
FOLDERS_LIMIT = 150
"""Folders that are searched below each."""
FILES_LIMIT = 256
CANDIDATES_LIMIT = 64
_CHOSEN_LIMIT = 4096

_TENSORBOARD, _LIGHTNING, _TRAINER, _TABLE, _WANDB, _MLFLOW, _TRACKIO = range(7)
"""Kinds of files: of two that have one series the first gives it."""

OWNERS = "#owners"
"""The key in positions of who gives each series."""

_OF_WHEEL = "Determined/"
"""What the names begin with under which Determined's wheel writes a trial's metrics into event files."""

_TRAINER_STATE = "trainer_state.json"
_CHECKPOINT_FOLDER = expression(r"checkpoint-\d+$")
_MLFLOW_METRIC = expression(r"(?:^|/)(?P<run>[0-9a-f]{32})/metrics/(?P<name>.+)$")
_TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".log", ".txt")
_LOG_NAME = expression(r"(?i)log|metric|histor|progress|scalar|losses")
"""What a table of metrics is called; any other has to grow while the command runs."""
_PASSED_OVER = ("__pycache__", "node_modules", "site-packages", "dist-packages", "artifacts", "venv")
_HEAD_BYTES = 64 << 10


class _FileKind(NamedTuple):
    rank: int
    run: str
    """What belongs together, with the variable of its folder: two of its files that give one series go on with it."""
    label: str
    """What its phase is read from."""
    path: str
    """The ends of this path tell the run from others; a folder that names the phase is not in it."""
    detail: str = ""


class FilesCollector(StreamCollector):
    """Reads what libraries write into the job's folders."""

    name = "auto"
    has_own_files = True
    made_find_share = 50

    def __init__(self, metrics: Mapping[str, Any], context: Context) -> None:
        super().__init__(metrics, context)
        self.names: Set[str] = set()
        """The names of the series that files gave."""
        self._since_us = context.begin_us()
        self._roots = job_folders(context, FOLDERS)
        self._kinds: Dict[str, _FileKind] = {}
        self._versions: Dict[str, List[str]] = {}
        self._candidates: Dict[str, _Candidate] = {}
        self._refused: Set[str] = set()
        self._old: Dict[str, int] = {}
        """Sizes of tables that were there before the command, by path."""
        self._owners = Owners()
        self._chosen: Dict[Tuple[str, str, str, int], Optional[Tuple[str, str]]] = {}
        """Group and name of the series that were given, by run, group, name and learner."""
        self._unread: Set[str] = set()
        """Kinds of records of event files that could not be read."""
        self._is_finishing = False

    def gives(self, name: str) -> bool:
        """Say whether files gave a series of this learner's of this name."""
        return bool(self._owners.owner(name, self._whose(None)))

    def _whose(self, learner: Any) -> int:
        """Return the learner whose series a record has; 0 where there is but one."""
        return int(learner or self.context.learner) if self.context.learners > 1 else 0

    def claim_printed(self, name: str) -> None:
        """Note that lines give a series of this name."""
        self._owners.claim_printed(name)

    # Where reading goes on

    def restore(self, cursor: Any) -> None:
        """Go on behind the record that has this cursor."""
        super().restore(cursor)
        self.resumed()

    def resumed(self) -> None:
        """Take over who gives each series."""
        self._owners = Owners(self._batches.begin.get(OWNERS))
        self._chosen.clear()

    def _position(self) -> Position:
        position = super()._position()
        # What is claimed while records are made belongs to their cursors: this stays the same object.
        return (
            {**position, OWNERS: self._owners.document}
            if self._sources or self._owners.document
            else position
        )

    def _reached(self, key: str, offset: Any) -> bool:
        return key == OWNERS or super()._reached(key, offset)

    # When to look

    @property
    def waiting(self) -> bool:
        """Whether points wait, or a file that was read only a moment ago has more."""
        return super().waiting or any(
            isinstance(file, RewrittenFile) and file.is_late for file in self._files.values()
        )

    @property
    def is_watched(self) -> bool:
        """Whether nothing has to be looked at again and again: a job that writes no such file costs nothing."""
        return super().is_watched or not (self._sources or self._candidates or self._were_made)

    def finish(self, now_us: int) -> bool:
        """Read all files to their ends."""
        self._is_finishing = True
        for file in self._files.values():
            if isinstance(file, RewrittenFile):
                file.is_ending = True
        return super().finish(now_us)

    # What is there

    def find(self) -> Iterator[StreamSource]:
        """Name the files that are there."""
        self._look_at_candidates()
        left = FILES_LIMIT - len(self._sources)
        for variable, root in self._roots:
            is_own = variable == OWN_FOLDER
            if not is_own and not self.may_read_files():
                continue
            for path, below, status in self._walk(root):
                if left <= 0:
                    return
                source = self._source(variable, path, below, status, is_own=is_own)
                if source is not None:
                    left -= 1
                    yield source

    def may_hold_points(self, path: str, *, is_folder: bool) -> bool:
        """Whether it is an event file, or a folder in LOG_DIR: elsewhere programs make folders for anything."""
        name = os.path.basename(path)
        if not is_folder:
            return "tfevents" in name and not name.startswith(".")
        inside = os.path.join(os.path.realpath(self.context.log_dir), "")
        return path.startswith(inside) and not _is_passed_over(name)

    def _walk(self, root: str) -> Iterator[Tuple[str, str, os.stat_result]]:
        left = FOLDERS_LIMIT
        try:
            with beneath.opened(root, self.context.writable) as (opened, inside):
                for below, descriptor, folders, files in opened.walk(inside):
                    left -= 1
                    folders[:] = sorted(name for name in folders if not _is_passed_over(name))
                    if left <= 0 or below.count(os.sep) + bool(below) >= DEPTH or "pyvenv.cfg" in files:
                        folders[:] = []
                    if left < 0 or "pyvenv.cfg" in files:
                        continue
                    self.watch("/proc/self/fd/%d" % descriptor)
                    for name in sorted(files):
                        if not _is_candidate(name, below):
                            continue
                        try:
                            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                        except OSError:
                            continue
                        if stat.S_ISREG(status.st_mode):
                            yield os.path.join(root, below, name), os.path.join(below, name), status
        except OSError:
            return

    def _source(
        self, variable: str, path: str, below: str, status: os.stat_result, *, is_own: bool
    ) -> Optional[StreamSource]:
        folder, base = os.path.split(below)
        shown = os.path.join(variable, below)
        if is_own and self.context.learners > 1:
            shown = os.path.join("learner-%d" % self.context.learner, shown)
        if base == _TRAINER_STATE:
            return self._trainer_source(path, shown, is_own=is_own)
        if shown in self._kinds:
            return None
        is_old = status.st_mtime_ns // 1000 < self._since_us
        kind = _kind_by_name(folder, base)
        if kind is None or kind.rank == _LIGHTNING:
            kind = self._table_kind(path, below, status, kind, is_old=is_old)
        if kind is None or is_old:
            return None
        kind = kind._replace(run=shown[: len(shown) - len(below)] + kind.run)
        return self._made_source(path, shown, kind, is_own=is_own)

    def _made_source(self, path: str, shown: str, kind: _FileKind, *, is_own: bool) -> StreamSource:
        self._kinds[shown] = kind
        group = _group_of(kind)
        subid = next((part for part in shown.split(os.sep) if part.startswith("learner-")), "")
        subid = subid if self.context.learners > 1 else ""
        learner = self.context.learner if is_own and self.context.learners > 1 else None
        source = StreamSource(path, shown, group, subid, learner=learner, is_own=is_own)
        if path in self._old and key_of(shown) not in self._batches.begin:
            begin = self._begin_behind(path, self._old[path], kind)
            if begin:
                self._batches.begin = {**self._batches.begin, key_of(shown): begin}
        return source

    def _trainer_source(self, path: str, shown: str, *, is_own: bool) -> Optional[StreamSource]:
        folder, name = os.path.split(shown)
        actual = os.path.dirname(path)
        if _CHECKPOINT_FOLDER.search(folder):
            folder, actual = os.path.dirname(folder), os.path.dirname(actual)
        shown = os.path.join(folder, name)
        paths = self._versions.setdefault(shown, [])
        if path not in paths:
            paths.append(path)
        # It is written with the checkpoints alone: lines that say the same come sooner, and say more in the end.
        if shown in self._kinds or not self._is_finishing:
            return None
        below = folder.partition(os.sep)[2]
        kind = _FileKind(_TRAINER, folder, os.path.basename(folder), self._path_of_run(below))
        return self._made_source(os.path.join(actual, name), shown, kind, is_own=is_own)

    # Tables: a file is one by what it holds, and when the command writes it

    def _table_kind(
        self, path: str, below: str, status: os.stat_result, known: Optional[_FileKind], *, is_old: bool
    ) -> Optional[_FileKind]:
        if path in self._refused or not below.endswith(_TABLE_SUFFIXES):
            return None
        if is_old:
            if len(self._old) < CANDIDATES_LIMIT and self._table_of(path) is not None:
                self._old[path] = status.st_size
            return None
        candidate = self._candidates.get(path)
        if candidate is None:
            if len(self._candidates) >= CANDIDATES_LIMIT:
                return None
            candidate = self._candidates[path] = _Candidate(-1, (), is_accepted=False)
        return self._examined(path, below, status, candidate, known)

    def _examined(
        self,
        path: str,
        below: str,
        status: os.stat_result,
        candidate: _Candidate,
        known: Optional[_FileKind],
    ) -> Optional[_FileKind]:
        found = self._table_of(path)
        if found is None:
            return None  # empty, or only its first line
        if not found:
            del self._candidates[path]
            self._refused.add(path)
            return None
        has_grown = 0 <= candidate.size < status.st_size or path in self._old
        if not (has_grown or _LOG_NAME.search(os.path.basename(path))):
            self._candidates[path] = _Candidate(status.st_size, _signature(status), is_accepted=False)
            return None
        del self._candidates[path]
        if known is not None:
            return known._replace(detail=found)
        label, folder = _label_of(below), os.path.dirname(below)
        is_named_by_folder = label == os.path.basename(folder)
        return _FileKind(
            _TABLE, below, label, folder if is_named_by_folder else os.path.join(folder, label), found
        )

    def _look_at_candidates(self) -> None:
        """Forget candidates that are gone."""
        for path in list(self._candidates):
            if not os.path.exists(path):
                del self._candidates[path]

    def _table_of(self, path: str) -> Optional[str]:
        """Return which table a file holds (``csv``, ``lines``), "" for none, None as long as too little is there."""
        try:
            with open(beneath.open_plainly(path, self.context.writable), "rb") as file:
                head = file.read(_HEAD_BYTES)
        except OSError:
            return ""
        return _table_in(head)

    def _begin_behind(self, path: str, size: int, kind: _FileKind) -> int:
        """Return where to begin in a table that has grown since the command began."""
        if kind.detail == "lines":
            return size
        try:
            with open(beneath.open_plainly(path, self.context.writable), "rb") as file:
                return len(table_lines(file.read(size)))
        except (OSError, ValueError):
            return 0

    # Reading

    def _read(self, now_us: int) -> bool:
        if self._candidates and self._candidates_changed():
            self._found_us = 0
        return super()._read(now_us)

    def _candidates_changed(self) -> bool:
        changed = False
        for path, candidate in list(self._candidates.items()):
            try:
                signature = _signature(os.stat(path))
            except OSError:
                continue
            if signature != candidate.seen:
                self._candidates[path] = candidate._replace(seen=signature)
                changed = True
        return changed

    def open_file(self, source: StreamSource, *, held: bool) -> FollowedFile:
        """Begin to follow a file."""
        kind, writable = self._kinds[source.name], self.context.writable
        if kind.rank == _TRAINER:
            versions = Versions(source.path, writable, history_lines, self._since_us)
            versions.paths = self._versions[source.name]
            return versions
        if kind.rank == _TRACKIO:
            # Here and below: most learners meet no such file, and save the memory.
            from workbench.learner.collectors.auto.files.runs import TrackioFile

            return TrackioFile(source.path, writable, self._since_us)
        if kind.detail == "csv":
            return RewrittenFile(source.path, writable, table_lines)
        return super().open_file(source, held=held)

    def open_stream(self, source: Optional[StreamSource], offset: int, until: Optional[int]) -> Stream:
        """Begin to read a file from an offset on."""
        assert source is not None, "it does not want the output"
        kind = self._kinds[source.name]
        if kind.rank == _TENSORBOARD:
            from workbench.learner.collectors.tensorboard.collector import EventStream

            return EventStream(source, offset, until, self.note, self._count_unread)
        if kind.rank == _WANDB:
            from workbench.learner.collectors.auto.files.runs import WandbStream

            return WandbStream(source, offset, until)
        if kind.rank == _MLFLOW:
            return MlflowStream(source, offset, until, kind.detail)
        return RowStream(source, offset, until)

    def _count_unread(self, kind: str, _count: int, name: str) -> None:
        """Note what may have been scalars; pictures and such were never this collector's to show."""
        from workbench.learner.collectors.tensorboard.scalars import DAMAGED, UNREADABLE

        if kind in (DAMAGED, UNREADABLE) and kind not in self._unread:
            self._unread.add(kind)
            self.note("%s in event files are left out (the first in %s)" % (kind, name))

    def in_order(self, streams: Mapping[str, Stream]) -> List[Tuple[str, Stream]]:
        """Return the streams in the order in which they may give a series."""
        return sorted(streams.items(), key=lambda item: self._place_of(item[0]))

    def _place_of(self, key: str) -> Tuple[int, int, str]:
        source = self._sources.get(key)
        if source is None:
            return _TRACKIO + 1, 0, key
        return self._kinds[source.name].rank, source.name.count(os.sep), source.name

    def _attributed(self, key: str, records: List[Record]) -> List[Record]:
        """Leave out what is not a series, and series that another kind of file gives."""
        given = []
        for record in super()._attributed(key, records):
            by_group: Dict[str, Dict[str, Any]] = {}
            for name, column in record["values"].items():
                kind = self._kinds[self._sources[key].name]
                own = None if self._is_reported(kind, name) else self._name_of(kind, record, name)
                if own is not None:
                    by_group.setdefault(own[0], {})[own[1]] = column
                    self.names.add(joined(*own))
            given += [{**record, "group": group, "values": values} for group, values in by_group.items()]
        return given

    def _is_reported(self, kind: _FileKind, tag: str) -> bool:
        """Say whether a trial class of Determined's wheel has written a scalar: it reports the same metric besides."""
        if kind.rank != _TENSORBOARD or not tag.startswith(_OF_WHEEL):
            return False
        from workbench.learner.determined_jobs import CONFIG_VARIABLE

        return bool(self.context.environment.get(CONFIG_VARIABLE))

    def _name_of(self, kind: _FileKind, record: Record, name: str) -> Optional[Tuple[str, str]]:
        """Return group and name of a series as its run gives it; None where lines or other files give it."""
        group, whose = str(record["group"]), self._whose(record.get("learner"))
        if not is_series(name) or self._is_printed((group, name), whose):
            return None
        key = (kind.run, group, name, whose)
        if key not in self._chosen:
            if len(self._chosen) >= _CHOSEN_LIMIT:
                self._chosen.clear()
            self._chosen[key] = self._choose(kind, group, name, whose)
        own = self._chosen[key]
        return None if own is None or self._is_printed(own, whose) else own

    def _is_printed(self, series: Tuple[str, str], whose: int) -> bool:
        """Say whether lines give a series: those of this learner, which are no other one's."""
        return whose == self._whose(None) and self._owners.is_printed(joined(*series))

    def _choose(self, kind: _FileKind, group: str, name: str, whose: int) -> Optional[Tuple[str, str]]:
        """Choose what a series is called: the first run has its plain name, others name the run."""
        owners, rank = self._owners, "%d." % kind.rank
        run = rank + key_of(kind.run)[:6]
        path = self._path_of_run(kind.path)
        for label in ("", *run_labels(path, ())):
            own = _labelled(label, group, name)
            if owners.owner(joined(*own), whose) == run:
                return own
        owner = owners.claim(joined(group, name), run, whose)
        if owner == run:
            return group, name
        if not owner.startswith(rank):
            return None
        others = {
            self._path_of_run(other.path)
            for other in self._kinds.values()
            if other.rank == kind.rank and _group_of(other) == _group_of(kind)
        }
        for label in run_labels(path, others):
            own = _labelled(label, group, name)
            if self._is_printed(own, whose):
                return None
            if owners.claim(joined(*own), run, whose) == run:
                return own
        # No other run has this one: two runs that differ by their learner are two learners' series.
        whole = without_learners(kind.run)
        return _labelled(os.path.dirname(whole) if group and _is_in_phase(kind) else whole, group, name)

    def _path_of_run(self, path: str) -> str:
        return without_learners(path) if self.context.learners > 1 else path


class _Candidate(NamedTuple):
    """A file that may turn out to be a table of metrics."""

    size: int
    """How long it was when it was first seen to be a table; -1 before."""
    seen: Tuple[int, ...]
    is_accepted: bool


def _table_in(head: bytes) -> Optional[str]:
    lines = head.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    if len(lines) < 2:
        return "" if len(head) >= _HEAD_BYTES else None
    row = json_row(lines[0].encode())
    if row is not None:
        return "lines" if has_metrics(row) else ""
    try:
        table = Table(lines[0])
    except ValueError:
        return ""
    if len(lines) < 3:
        return None
    first = table.row(lines[1])
    return "csv" if first and has_metrics(first) else ""


def _labelled(label: str, group: str, name: str) -> Tuple[str, str]:
    """Return group and name of a run's series; a name without a group has the run's before it."""
    if group:
        return clean_name(joined(label, group)), name
    return group, clean_name(joined(label, name))


def _kind_by_name(folder: str, base: str) -> Optional[_FileKind]:
    if "tfevents" in base or base == "metrics.csv":
        label = os.path.basename(folder)
        kind = _FileKind(_TENSORBOARD if "tfevents" in base else _LIGHTNING, folder, label, folder)
        return kind._replace(path=os.path.dirname(folder)) if _is_in_phase(kind) else kind
    if base.endswith(".wandb"):
        stem = base[: -len(".wandb")]
        return _FileKind(_WANDB, folder, stem, stem)
    metric = _MLFLOW_METRIC.search(os.path.join(folder, base))
    if metric is not None:
        run = metric.group("run")
        return _FileKind(_MLFLOW, run, run[:8], run[:8], metric.group("name"))
    if base.endswith(".db"):
        path = os.path.join(folder, base[: -len(".db")])
        return _FileKind(_TRACKIO, os.path.join(folder, base), os.path.basename(path), path)
    return None


def _is_in_phase(kind: _FileKind) -> bool:
    """Say whether a run's files lie in a folder for one phase, as ``train``."""
    return kind.rank in (_TENSORBOARD, _LIGHTNING) and bool(phase_of(kind.label))


def _group_of(kind: _FileKind) -> str:
    """Return what a run's folder or file says of its phase."""
    phase = phase_of(kind.label)
    if kind.rank == _TENSORBOARD and phase:
        return kind.label
    return phase if kind.rank in (_LIGHTNING, _TABLE) and phase != "train" else ""


def _is_candidate(name: str, folder: str) -> bool:
    if name.startswith("."):
        return False
    if "tfevents" in name or name.endswith((".wandb", *_TABLE_SUFFIXES)):
        return True
    if name.endswith(".db"):
        return "trackio" in folder.split(os.sep)
    return "metrics" in folder.split(os.sep) and _MLFLOW_METRIC.search(os.path.join(folder, name)) is not None


def _is_passed_over(folder: str) -> bool:
    return folder.startswith(".") or folder in _PASSED_OVER


def _label_of(path: str) -> str:
    """Return what a table is called: its folder's name where its own says nothing."""
    folder, base = os.path.split(path)
    stem = os.path.splitext(base)[0]
    return os.path.basename(folder) if folder and _LOG_NAME.search(stem) and not phase_of(stem) else stem


def _signature(status: os.stat_result) -> Tuple[int, ...]:
    return (status.st_size, status.st_mtime_ns)


class FoundFiles:
    """The files of a job's folders, for a collector that has other sources too."""

    def __init__(self, context: Context) -> None:
        self._collector = FilesCollector({}, context)

    def restore(self, cursor: Any) -> None:
        """Go on behind the record that has this cursor."""
        self._collector.restore(cursor)

    @property
    def cursor(self) -> Any:
        """Where to go on when all records that were taken are written."""
        return self._collector.cursor()

    @property
    def waiting(self) -> bool:
        """Whether points wait for the next poll."""
        return self._collector.waiting

    @property
    def descriptor(self) -> Optional[int]:
        """What is readable when files were made or written."""
        return self._collector.descriptor

    @property
    def is_watched(self) -> bool:
        """Whether all changes are reported."""
        return self._collector.is_watched

    def search(self) -> None:
        """Look for new files at the next poll."""
        self._collector.search()

    def poll(self, now_us: int) -> bool:
        """Look for files and read on in them; return whether there is more to read."""
        return self._collector.poll(now_us)

    def finish(self, now_us: int) -> bool:
        """Read on to the very end; return whether there is more."""
        return self._collector.finish(now_us)

    def take(self) -> List[Record]:
        """Return the records that are finished; the cursor of each is that of the files alone."""
        return self._collector.take()

    def close(self) -> None:
        """Close the files and the watch."""
        self._collector.close()

    @property
    def names(self) -> Set[str]:
        """The names of the series that files gave since this was made."""
        return self._collector.names

    def claim_printed(self, name: str) -> None:
        """Note that lines give a series of this name: no file adds to it."""
        self._collector.claim_printed(name)

    def gives(self, name: str) -> bool:
        """Say whether files gave a series, whatever they call it and whoever read them."""
        return self._collector.gives(name)
