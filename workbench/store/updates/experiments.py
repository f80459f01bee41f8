"""Searches as they are written: their history on disk, and the rows that are made of it.

Every event of a search is a line of its ``events.jsonl`` before it is a row; the line holds the operations that
followed, so the trials can be restored without the search methods.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from workbench.clock import now_us
from workbench.errors import UnknownName
from workbench.job import ID_ALPHABET
from workbench.paths import create_private, make_private_folder
from workbench.store.db.database import Store
from workbench.store.db.errors import write_failure
from workbench.store.db.rows import dump
from workbench.store.db.schema import EXPERIMENTS, EXPERIMENTS_NAMES, statements
from workbench.store.history.journal import append_line, read_events
from workbench.store.queries.experiments import (
    ID_PREFIX,
    OPEN,
    PAUSED,
    RUNNING,
    STOPPED,
    WAITING,
    ExperimentRow,
    events_of,
    experiment,
    read_experiment_file,
)

_ID_LENGTH: Final = 9
FORMAT: Final = 1
_DELETED_OR_NOT: Final = ("delete", "continue")
_KINDS: Final = ("archived", "annotated", "reordered", "deleted")
"""What a search can be, each with a table of its own."""


def new_experiment_id() -> str:
    """Make a new id."""
    return ID_PREFIX + "".join(ID_ALPHABET[byte % len(ID_ALPHABET)] for byte in os.urandom(_ID_LENGTH))


def insert_experiment(store: Store, experiment_id: str, document: Mapping[str, Any]) -> ExperimentRow:
    """Write a new search: its file, its history, its row.

    Raises:
        CannotWrite: the home takes no more.
    """
    file = store.home.experiment(experiment_id).experiment_file
    try:
        make_private_folder(file.parent)
        with create_private(file) as stream:
            json.dump({"format": FORMAT, "id": experiment_id, **document}, stream, ensure_ascii=False)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise write_failure(error, file) from error
    record_event(store, experiment_id, {"do": "submit"})
    found = experiment(store, experiment_id)
    assert found is not None
    return found


def record_event(store: Store, experiment_id: str, event: dict[str, Any]) -> None:
    """Write an event to the search's history, then to the rows, all or nothing.

    Raises:
        CannotWrite: the history cannot be written; nothing has changed.
        UnknownName: the search was deleted; a line would make its folder again.
    """
    event.setdefault("time", now_us())
    with store.atomic():
        catch_up_experiment(store, experiment_id)
        if event["do"] != "submit" and experiment(store, experiment_id) is None:
            raise UnknownName(
                f"there is no experiment {experiment_id} any more",
                hint="`fabric experiment list` shows those there are",
            )
        file = store.home.experiment(experiment_id).events
        end = append_line(store.home, file, event, durable=True, store=store)
        _apply(store, experiment_id, event, end)


def catch_up_experiment(store: Store, experiment_id: str) -> int:
    """Apply what the history holds and the rows do not; return how many events that were."""
    with store.atomic():
        if not all(map(store.has_table, EXPERIMENTS_NAMES)):
            for statement in statements(EXPERIMENTS):
                store.execute(statement)
        held = store.row("SELECT events_size FROM experiments WHERE id = ?", (experiment_id,))
        file = store.home.experiment(experiment_id).events
        count = 0
        if file.exists():
            for event, end in read_events(file, held[0] if held else 0):
                _apply(store, experiment_id, event, end)
                count += 1
        return count


def keep_continued(store: Store, experiment_id: str) -> bool:
    """Forget the deletion of a search that was continued since; return whether it was.

    An older fabric knows no deletion: it ends such a search, and lets a person continue it, who wants it then.
    """
    asked = [event["do"] for event in events_of(store.home, experiment_id) if event["do"] in _DELETED_OR_NOT]
    if asked[-1:] != ["continue"]:
        return False
    with store.atomic():
        store.execute("DELETE FROM deleted_experiments WHERE id = ?", (experiment_id,))
    return True


def remove_experiment(store: Store, experiment_id: str) -> Path:
    """Remove a search that is deleted from the home: its folder in one step, then its rows.

    The folder goes first. Without it nothing makes rows of the search again, and where only the rows are left, this
    is done once more.

    Returns:
        Where its folder lies now, to be removed by the caller; it may not be there.

    Raises:
        CannotWrite: the home takes no change.
    """
    home = store.home
    folder, leftover = home.experiment(experiment_id).path, home.deleted_experiments / experiment_id
    try:
        if folder.exists():
            make_private_folder(leftover.parent, within=home.path)
            folder.rename(leftover)
    except OSError as error:
        raise write_failure(error, folder) from error
    with store.atomic():
        store.execute("DELETE FROM trials WHERE experiment = ?", (experiment_id,))
        for table in ("experiments", *(f"{kind}_experiments" for kind in _KINDS)):
            store.execute(f"DELETE FROM {table} WHERE id = ?", (experiment_id,))
    return leftover


def _apply(store: Store, experiment_id: str, event: Mapping[str, Any], end: int) -> None:
    if event["do"] == "submit":
        # Who changes a job needs nothing of manifests.
        from workbench.manifest.builder.params import search_name

        document = read_experiment_file(store.home, experiment_id)
        search = document["spec"]["search"]
        store.execute(
            "INSERT OR IGNORE INTO experiments (id, name, state, method, metric, goal, created_us)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                experiment_id,
                search_name(document["spec"]["name"]),
                RUNNING,
                search["method"],
                search.get("metric", ""),
                search.get("goal", "minimize"),
                event["time"],
            ),
        )
    if event["do"] == "report":
        _report(store, experiment_id, event)
    for each in event.get("operations") or ():
        _operation(store, experiment_id, each)
    if event["do"] == "end":
        store.execute(
            "UPDATE trials SET state = ? WHERE experiment = ? AND trial = ? AND state IN (?, ?, ?)",
            (event["how"].upper(), experiment_id, event["trial"], RUNNING, PAUSED, WAITING),
        )
    elif event["do"] == "paused":
        store.execute(
            "UPDATE trials SET state = ? WHERE experiment = ? AND trial = ? AND state = ?",
            (PAUSED, experiment_id, event["trial"], RUNNING),
        )
    elif event["do"] == "resume":
        store.execute(
            "UPDATE trials SET state = ? WHERE experiment = ? AND state = ?", (RUNNING, experiment_id, PAUSED)
        )
    elif event["do"] == "continue":
        store.execute("DELETE FROM archived_experiments WHERE id = ?", (experiment_id,))
    elif event["do"] == "delete":
        store.execute(
            "INSERT OR REPLACE INTO deleted_experiments (id, who) VALUES (?, ?)",
            (experiment_id, event["who"]),
        )
    elif event["do"] == "continued":
        for each in event["trials"]:
            store.execute(
                "UPDATE trials SET state = ? WHERE experiment = ? AND trial = ?",
                (RUNNING, experiment_id, each["trial"]),
            )
    if state := event.get("state"):
        ended = None if state in OPEN else event["time"]
        store.execute(
            "UPDATE experiments SET state = ?, reason = ?, ended_us = ? WHERE id = ?",
            (state, event.get("reason", ""), ended, experiment_id),
        )
    elif event["do"] == "archive":
        store.execute("INSERT OR IGNORE INTO archived_experiments (id) VALUES (?)", (experiment_id,))
    elif event["do"] == "unarchive":
        store.execute("DELETE FROM archived_experiments WHERE id = ?", (experiment_id,))
    elif event["do"] == "annotate":
        store.execute("INSERT OR IGNORE INTO annotated_experiments (id) VALUES (?)", (experiment_id,))
        tags = None if event.get("tags") is None else dump(event["tags"])
        store.execute(
            "UPDATE annotated_experiments SET note = coalesce(?, note), tags = coalesce(?, tags) WHERE id = ?",
            (event.get("note"), tags, experiment_id),
        )
    elif event["do"] == "reorder":
        store.execute("INSERT OR IGNORE INTO reordered_experiments (id) VALUES (?)", (experiment_id,))
        store.execute(
            "UPDATE reordered_experiments SET priority = coalesce(?, priority), weight = coalesce(?, weight)"
            " WHERE id = ?",
            (event.get("priority"), event.get("weight"), experiment_id),
        )
    elif event["do"] == "note":
        # Of one that is paused or being ended the reason says why.
        store.execute(
            "UPDATE experiments SET reason = ? WHERE id = ? AND state = ?",
            (event["reason"], experiment_id, RUNNING),
        )
    store.execute("UPDATE experiments SET events_size = ? WHERE id = ?", (end, experiment_id))


def _operation(store: Store, experiment_id: str, operation: Mapping[str, Any]) -> None:
    if operation["do"] == "create":
        store.execute(
            "INSERT OR IGNORE INTO trials (experiment, number, trial, job_id, hparams, seed, state)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                experiment_id,
                operation["number"],
                operation["trial"],
                operation["job"],
                dump(operation["hparams"]),
                operation["seed"],
                RUNNING,
            ),
        )
    elif operation["do"] == "run":
        state = "CASE (SELECT state FROM experiments WHERE id = ?1) WHEN ?2 THEN ?2 ELSE ?3 END"
        store.execute(
            f"UPDATE trials SET state = {state} WHERE experiment = ?1 AND trial = ?4 AND state = ?5",
            (experiment_id, PAUSED, RUNNING, operation["trial"], WAITING),
        )
    elif operation["do"] == "stop":
        store.execute(
            "UPDATE trials SET state = ? WHERE experiment = ? AND trial = ?",
            (STOPPED, experiment_id, operation["trial"]),
        )


def _report(store: Store, experiment_id: str, event: Mapping[str, Any]) -> None:
    value = event["value"]
    least = store.row("SELECT goal FROM experiments WHERE id = ?", (experiment_id,)) == ("minimize",)
    better = "min" if least else "max"
    store.execute(
        f"UPDATE trials SET units = coalesce(?, units), last = ?, best = coalesce({better}(best, ?), best, ?)"
        " WHERE experiment = ? AND trial = ?",
        (event.get("units"), value, value, value, experiment_id, event["trial"]),
    )
    if event.get("waits"):
        store.execute(
            "UPDATE trials SET state = ? WHERE experiment = ? AND trial = ?",
            (WAITING, experiment_id, event["trial"]),
        )
