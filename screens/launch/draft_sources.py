"""What a new job can be made from: manifests at hand, examples, earlier jobs. To be called from threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from screens.launch.draft import Draft, from_arguments, from_manifest, in_folder
from workbench import formats
from workbench.errors import InputMissing
from workbench.job import short_id
from workbench.manifest import from_command
from workbench.paths import Home, make_private_folder, write_private
from workbench.store.db.database import Store
from workbench.store.db.errors import write_failure
from workbench.store.queries.jobs import detail, list_jobs
from workbench.store.queries.resolve import resolve

RECENT: Final = 30
"""So many earlier jobs are offered."""
EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"
"""In a clone of the repository; an installation has none."""
MANIFESTS: Final = ("*.yml", "*.yaml", "examples/*/manifest.yml", "*/manifest.yml")
"""Where manifests are looked for, below the working directory."""

Offer = tuple[str, str, str]
"""What it is (``file``, ``job``, ``command``), its path or id, and a line about it."""


def offers(home: Home) -> list[Offer]:
    """Name everything that a job can be made from."""
    here = [("file", path, "manifest") for path in manifests_here()]
    known = {str(Path(path).absolute()) for _, path, _ in here}
    examples = [
        ("file", str(path), "example")
        for path in sorted(EXAMPLES.glob("*/manifest.y*ml"))
        if str(path) not in known
    ]
    with Store.open(home) as store:
        earlier = [
            ("job", str(row.id), f"{formats.printable(row.name)}  {row.state.lower()}")
            for row in list_jobs(store, limit=RECENT)
        ]
    return [("command", "", "a command, without a manifest"), *here, *earlier, *examples]


def manifests_here(most: int = 40) -> list[str]:
    """Name the manifests below the working directory, the nearest first."""
    found: dict[str, None] = {}
    for pattern in MANIFESTS:
        for path in sorted(Path.cwd().glob(pattern)):
            found.setdefault(str(path.relative_to(Path.cwd())))
            if len(found) >= most:
                return list(found)
    return list(found)


def draft_of_file(path: str) -> Draft:
    """Begin with a manifest's file.

    Raises:
        InputMissing: it cannot be read.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputMissing(f"cannot read {path}: {error.strerror}") from error
    return from_manifest(path, text)


def draft_of_job(home: Home, job_id: str) -> Draft:
    """Begin with an earlier job: its manifest, what was laid over it, its code.

    Raises:
        UnknownName: there is no such job.
        CannotWrite: its manifest cannot be put down for the command to read.
    """
    with Store.open(home) as store:
        found = detail(store, resolve(store, job_id).id)
    row = found.row
    file = write_draft(home, short_id(row.id), found.manifest_text)
    snapshot = home.snapshot(found.code_hash) if found.code_hash else None
    code = str(snapshot) if snapshot is not None and snapshot.exists() else ""
    begun = Draft(manifest=str(file), text=found.manifest_text, code=code)
    before = from_arguments(begun, [str(word) for word in found.recorded.get("argv") or ()]).changes
    # What was laid over the manifest is part of the job as it was, and no change of it.
    text = with_changes(found.manifest_text, before)
    if before:
        write_draft(home, short_id(row.id), text)
    return replace(begun, text=text, again=str(row.id), origin=f"job {short_id(row.id)} {row.name}")


def draft_of_search(home: Home, job_id: str) -> Draft:
    """Begin with a search for hyper-parameters around those of an earlier job.

    Raises:
        UnknownName: there is no such job.
        UsageError: it has no hyper-parameters.
        CannotWrite: the manifest cannot be put down for the command to read.
    """
    from workbench.services.submit.search_draft import search_manifest

    begun = draft_of_job(home, job_id)
    with Store.open(home) as store:
        found = detail(store, resolve(store, job_id).id)
        text = search_manifest(store, found, begun.text)
    short = short_id(found.row.id)
    file = write_draft(home, f"search-{short}", text)
    origin = f"job {short} {found.row.name}, as a search"
    return replace(begun, manifest=str(file), text=text, again="", origin=origin)


def with_changes(manifest: str, changes: Mapping[str, str]) -> str:
    """Return a manifest's text with values of the former command line in it, where there were any."""
    if not changes:
        return manifest
    import yaml

    try:
        document = yaml.safe_load(manifest) or {}
        for key, value in changes.items():
            _put(document, key.split("."), yaml.safe_load(value) if value else None)
    except (yaml.YAMLError, TypeError, AttributeError, RecursionError):
        return manifest
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))


def _put(document: dict[str, object], path: list[str], value: object) -> None:
    for part in path[:-1]:
        below = document.setdefault(part, {})
        if not isinstance(below, dict):
            raise TypeError(part)
        document = below
    document[path[-1]] = value


def write_draft(home: Home, name: str, text: str) -> Path:
    """Put a manifest down where the command can read it; it is the user's alone.

    Raises:
        CannotWrite: it cannot be written.
    """
    file = home.drafts / f"{name}.yml"
    try:
        make_private_folder(home.drafts)
        write_private(file, text)
    except OSError as error:
        raise write_failure(error, file) from error
    return file


def draft_to_edit(home: Home, draft: Draft) -> Draft:
    """Return the draft as one whose manifest may be edited freely: a copy, with the code where it was.

    Raises:
        CannotWrite: the copy cannot be written.
    """
    if draft.manifest:
        # An earlier job without code has a manifest among our drafts, where no code lies.
        is_ours = Path(draft.manifest).parent == home.drafts
        text, code = draft.text, draft.code or ("" if is_ours else in_folder(draft.manifest, draft.text))
    else:
        text, code = (
            from_command([draft.changes.get("framework.command", "") or "python train.py"]),
            str(Path.cwd()),
        )
    changes = {
        key: value for key, value in draft.changes.items() if draft.manifest or key != "framework.command"
    }
    file = write_draft(home, "edited", text)
    return replace(draft, manifest=str(file), text=text, code=code, changes=changes, again="")
