"""``job.json``: what was submitted, frozen; and ``spec-2.json``, what a later attempt was begun with instead.

Each is written once, whole or not at all, before the event that it belongs to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from workbench.errors import ConfigError, InputMissing
from workbench.job import JobId, Reason
from workbench.paths import Home, create_private, make_private_folder
from workbench.store.db.errors import write_failure
from workbench.store.db.rows import JobDetail, JobRow, TargetRef

FORMAT: Final = 1


def write_job_file(home: Home, detail: JobDetail) -> None:
    """Write a job's ``job.json``; its folder is made. What is there already stays as it is.

    Raises:
        CannotWrite: the folder or file cannot be written; nothing half-made is left.
    """
    file = home.job(detail.row.id).job_file
    if not file.exists():
        _write(file, _document(detail))


def write_changed_spec(home: Home, job_id: str, attempt: int, changed: Mapping[str, Any] | None) -> None:
    """Write what an attempt that is about to begin has instead: ``spec`` and ``origins``; None leaves it as it was.

    One that goes on at another backend has ``moved_from``, the backend's name, as well.

    Raises:
        CannotWrite: the file cannot be written; nothing half-made is left.
    """
    file = home.job(job_id).changed_spec(attempt)
    if changed is not None:
        keys = [key for key in ("spec", "origins", "moved_from") if key in changed]
        _write(file, {"format": FORMAT, **{key: changed[key] for key in keys}})
        return
    try:
        file.unlink(missing_ok=True)  # of an attempt that was never begun
    except OSError as error:
        raise write_failure(error, file) from error


def with_changes(home: Home, document: dict[str, Any], attempt: int | None = None) -> dict[str, Any]:
    """Return a job's document as it is for an attempt: with what that, or one before it, was begun with instead.

    Without an attempt it is that of the last one. Where an attempt went on at another backend, ``recorded`` has
    ``moved``: the ``attempt``, and the name of the backend ``from`` which it came.
    """
    folder = home.job(document["id"])
    if attempt is None:
        attempt = max((int(file.stem[5:]) for file in folder.path.glob("spec-[0-9]*.json")), default=1)
    changed: dict[str, Any] = {}
    for number in range(attempt, 1, -1):
        try:
            found = json.loads(folder.changed_spec(number).read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            file = folder.changed_spec(number)
            raise InputMissing(
                f"{file} cannot be read: {error}", hint="the job's folder was changed by someone"
            ) from error
        changed = {"spec": found["spec"], "origins": found["origins"], **changed}
        if "moved_from" in found:
            moved = {"attempt": number, "from": found["moved_from"]}
            changed["recorded"] = {**(document.get("recorded") or {}), "moved": moved}
            break
    return {**document, **changed}


def _write(file: Path, document: Mapping[str, Any]) -> None:
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        make_private_folder(file.parent)
        temporary.unlink(missing_ok=True)  # what a process of the same number left
        try:
            with create_private(temporary) as stream:
                stream.write(_text_of(document))
                stream.flush()
                os.fsync(stream.fileno())
            temporary.rename(file)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise write_failure(error, file) from error


def _text_of(document: Mapping[str, Any]) -> str:
    r"""Write a document; one with a path that is not UTF-8 is all ASCII: ``\udce9`` is read back as that byte."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(document, separators=(",", ":"))
    return text


def read_job_document(home: Home, job_id: str) -> dict[str, Any]:
    """Read ``job.json`` as it stands.

    Raises:
        InputMissing: it is not there, or is not what it should be.
        ConfigError: it is from a newer version of fabric.
    """
    file = home.job(job_id).job_file
    try:
        document = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise InputMissing(
            f"{file} cannot be read: {error}", hint="the job's folder was changed by someone"
        ) from error
    if not isinstance(document, dict) or document.get("id") != job_id:
        raise InputMissing(
            f"{file} does not describe {job_id}", hint="the job's folder was changed by someone"
        )
    if document.get("format", 0) > FORMAT:
        raise ConfigError(f"{file} is from a newer version of fabric", hint="upgrade fabric")
    return document


def detail_from(document: dict[str, Any], row: JobRow) -> JobDetail:
    """Make a job's detail of its document and its row."""
    from workbench.spec import spec_from_json

    return JobDetail(
        row=row,
        spec=spec_from_json(document["spec"]),
        manifest_text=document.get("manifest_text", ""),
        origins=document.get("origins") or {},
        code_hash=document.get("code_hash", ""),
        recorded=document.get("recorded") or {},
    )


def row_from(document: dict[str, Any]) -> JobRow:
    """Make the row that a job had when it was submitted, of its document."""
    from workbench.spec import spec_from_json

    spec = spec_from_json(document["spec"])
    target = document["place"]
    return JobRow(
        id=JobId(document["id"]),
        name=document["name"],
        reason=Reason(""),
        target=TargetRef(**target),
        owner=document["owner"],
        submitted_us=document["submitted_us"],
        changed_us=document["submitted_us"],
        learners=spec.learners,
        gpus=spec.gpus,
        cpus=spec.cpus,
        memory_bytes=spec.memory_bytes,
        labels=document.get("labels") or {},
        tags=tuple(document.get("tags") or ()),
        parent=document.get("parent"),
        trial=document.get("trial"),
    )


def _document(detail: JobDetail) -> dict[str, Any]:
    from workbench.spec import spec_to_json

    row, target = detail.row, detail.row.target
    return {
        "format": FORMAT,
        "id": row.id,
        "name": row.name,
        "owner": row.owner,
        "submitted_us": row.submitted_us,
        "place": {
            "backend": target.backend,
            "type": target.type,
            "runner": target.runner,
            "address": target.address,
            "options": dict(target.options),
        },
        "spec": spec_to_json(detail.spec),
        "manifest_text": detail.manifest_text,
        "origins": dict(detail.origins),
        "code_hash": detail.code_hash,
        "recorded": dict(detail.recorded),
        "parent": row.parent,
        "trial": row.trial,
        "labels": dict(row.labels),
        "tags": list(row.tags),
    }
