"""Several jobs laid beside each other: their settings, what was recorded of them, their values, their code."""

from __future__ import annotations

import difflib
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from workbench.paths import Home
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobDetail, JobRow, SeriesRow

TEXT_BYTES: Final = 200_000
"""Larger files are only said to differ."""

LESS_IS_BETTER: Final = (
    "loss", "error", "err", "perplexity", "ppl", "mae", "mse", "rmse", "wer", "cer", "time", "seconds",
)  # fmt: skip
MORE_IS_BETTER: Final = (
    "accuracy", "acc", "f1", "auc", "precision", "recall", "score", "bleu", "rouge", "map", "iou", "dice", "reward",
)  # fmt: skip

NOT_COMPARED: Final = ("argv", "packages", "rerun_of", "data", "data_cache_bytes")
"""Recorded, but no setting: how the command was worded; packages are compared by themselves."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """All that is known of one job."""

    detail: JobDetail
    series: Mapping[str, SeriesRow]
    """By name; of several learners the first one's."""
    diff: str
    """What was not committed when its code was snapped."""
    place: Mapping[str, Any]
    """What the place recorded of the last attempt: packages that were resolved, the image with its digest."""
    data: Mapping[str, str]
    """The fingerprint of each store's data."""

    @property
    def row(self) -> JobRow:
        """The job's row."""
        return self.detail.row


def sheet_of(store: Store, row: JobRow) -> Sheet:
    """Read a job."""
    from workbench.data.stores.fingerprints import recorded_data
    from workbench.metrics import series
    from workbench.store.jobs import detail

    found: dict[str, SeriesRow] = {}
    for each in series(store, row.id, kinds=("value",)):
        found.setdefault(each.name, each)
    file = store.home.job(row.id).diff
    text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
    data = recorded_data(store.home.job(row.id), row.attempt)
    return Sheet(detail(store, row.id), found, text, _place_document(store, row), data)


def _place_document(store: Store, row: JobRow) -> dict[str, Any]:
    try:
        found = json.loads(store.home.job(row.id).attempt(row.attempt).environment.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def settings_of(sheet: Sheet) -> dict[str, Any]:
    """Return every setting by its dotted key, the place among them."""
    from workbench.cli.commands.inspect.show import settings

    place = sheet.row.place
    return {"place": place.backend, "runner": place.runner, **dict(settings(sheet.detail))}


def recorded_of(sheet: Sheet) -> dict[str, Any]:
    """Return what was recorded at the launch, flat: git, interpreter, machine, driver, seed, data, our version."""
    kept = {key: value for key, value in sheet.detail.recorded.items() if key not in NOT_COMPARED}
    flat: dict[str, Any] = {}
    _flatten("", kept, flat)
    there = {key: value for key, value in sheet.place.items() if key not in ("format", "packages")}
    _flatten("there", there, flat)
    _flatten("data", dict(sheet.data), flat)
    return flat


def _flatten(prefix: str, value: Any, into: dict[str, Any]) -> None:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            _flatten(f"{prefix}.{key}" if prefix else str(key), item, into)
    else:
        into[prefix] = value


def differing(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys whose values are not the same in all tables."""
    keys = dict.fromkeys(key for table in tables for key in table)
    return [key for key in keys if len({repr(table.get(key)) for table in tables}) > 1]


def packages_of(sheet: Sheet) -> dict[str, str]:
    """Return each package of the interpreter with its version."""
    packages = sheet.place.get("packages") or sheet.detail.recorded.get("packages") or ()
    pairs = (str(each).partition("==") for each in packages)
    return {name: version for name, _, version in pairs}


def best_is_least(name: str) -> bool | None:
    """Say whether less of a metric is better; None where its name does not tell."""
    words = set(name.rpartition("/")[2].lower().replace("-", "_").split("_"))
    if words & set(LESS_IS_BETTER) or any(word.endswith("loss") for word in words):
        return True
    return False if words & set(MORE_IS_BETTER) else None


def code_differences(home: Home, one: str, other: str, names: tuple[str, str]) -> list[tuple[str, list[str]]]:
    """Return each file that differs between two snapshots, with the lines of its difference.

    Raises:
        InputMissing: a snapshot is not there any more.
    """
    if one == other:
        return []
    before, after = _files(home, one), _files(home, other)
    found = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old != new:
            found.append((name, _lines(name, old, new, names)))
    return found


def _files(home: Home, code_hash: str) -> dict[str, bytes]:
    from workbench.errors import InputMissing

    if not code_hash:
        return {}
    try:
        with tarfile.open(home.snapshot(code_hash)) as archive:
            members = [member for member in archive if member.isfile()]
            return {member.name: _content(archive, member) for member in members}
    except (OSError, tarfile.TarError) as error:
        raise InputMissing(f"the code {code_hash[:12]} is not there any more: {error}") from error


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    return stream.read() if stream else b""


def _lines(name: str, old: bytes | None, new: bytes | None, names: tuple[str, str]) -> list[str]:
    both = [content or b"" for content in (old, new)]
    if any(len(content) > TEXT_BYTES or b"\0" in content for content in both):
        sizes = [f"{len(content):,} bytes" if content is not None else "not there" for content in (old, new)]
        return [f"{name} differs: {sizes[0]}, {sizes[1]}"]
    texts = [content.decode(errors="replace").splitlines() for content in both]
    labels = [
        f"{folder}/{name}" if content is not None else "/dev/null"
        for folder, content in zip(names, (old, new), strict=True)
    ]
    return list(difflib.unified_diff(texts[0], texts[1], labels[0], labels[1], lineterm=""))
