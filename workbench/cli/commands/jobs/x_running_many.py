"""``fabric run`` of several jobs: the product of lists in ``--set``, or the documents of one file as a chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from workbench.errors import UsageError
from workbench.formats import count
from workbench.job import JobId, nine
from workbench.spec import SWEEP_LABEL
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.cli.commands.jobs.run_flow import Plan, Ways
    from workbench.cli.follow.signals import Policy
    from workbench.paths import Home
    from workbench.services.submit.options import Words
    from workbench.services.submit.prepare import Prepared
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow


@dataclass(frozen=True, slots=True)
class Several:
    """Jobs that are submitted together."""

    each: tuple[Words, ...]
    ids: tuple[JobId | None, ...]
    names: tuple[str, ...]
    """By which they know each other; empty where they do not."""
    label: str
    """``sweep=...``, or empty."""


def run_many(
    words: Words, documents: Sequence[Words], variants: Sequence[tuple[str, ...]], ways: Ways
) -> int:
    """Start several jobs, follow them together, and return the exit code.

    It is that of the first that did not end with 0.
    """
    from workbench.cli.commands.jobs.run_flow import Plan, settled
    from workbench.cli.follow.signals import policy_of
    from workbench.services.open_store import open_store
    from workbench.services.submit.submit import ControllerStart

    if len(documents) > 1 and len(variants) > 1:
        raise UsageError(
            "lists in --set start many jobs, and so do the documents of one file; not both at once",
            hint="give the parts of the chain files of their own, or --set one value",
        )
    several = _chain(documents) if len(documents) > 1 else _sweep(words, variants)
    if ways.plan:
        return _plans(several, json=ways.json)
    told, ways = ways, settled(ways)
    plan = Plan.of(ways, told)
    policy = policy_of(ways.on_interrupt)
    with open_store() as store, ControllerStart(store.home):
        rows = _submit(store, several, quiet=bool(ways.quiet) or ways.json)
        if ways.detach:
            return _tell_detached(rows, several, ways)
        return _follow(store, rows, several, ways, plan, policy)


def _chain(documents: Sequence[Words]) -> Several:
    from workbench.services.submit.chains import in_order

    links = in_order(documents)
    return Several(
        tuple(link.words for link in links),
        tuple(link.job_id for link in links),
        tuple(link.name for link in links),
        "",
    )


def _sweep(words: Words, variants: Sequence[tuple[str, ...]]) -> Several:
    from workbench.services.submit.options import labels_of
    from workbench.services.submit.sweeps import new_label

    value = labels_of(words.labels).get(SWEEP_LABEL, "")
    if words.at_most is not None and len(variants) == 1 and not value:
        raise UsageError(
            f"--at-most counts the jobs with the same label `{SWEEP_LABEL}`, and this one has none",
            hint=f"--label {SWEEP_LABEL}=NAME gives it one, lists in --set do it by themselves",
        )
    label = f"{SWEEP_LABEL}={value or new_label()}"
    labels = (*(each for each in words.labels if not each.startswith(f"{SWEEP_LABEL}=")), label)
    each = tuple(replace(words, overrides=overrides, labels=labels) for overrides in variants)
    return Several(each, (None,) * len(each), (), label)


def _submit(store: Store, several: Several, *, quiet: bool) -> list[JobRow]:
    from workbench.services.submit.submit import submit

    prepared = _prepared(several, store.home)
    rows = []
    for number, (words, each) in enumerate(zip(several.each, prepared, strict=True), 1):
        made = _numbered(each, number, len(prepared)) if several.label else each
        # What a manifest or a place has to say is the same for all jobs of a sweep.
        said = made if number == 1 or not several.label else replace(made, warnings=(), notes=())
        rows.append(submit(store, said, keep_manifest=not words.manifest, quiet=True))
        if not quiet:
            narrate(_line(rows[-1], several, words, number))
    if several.label and not quiet:
        narrate(f"{count(len(rows), 'job')} with the label {several.label}")
    return rows


def _prepared(several: Several, home: Home, *, launch: bool = True) -> list[Prepared]:
    """Prepare all before any is submitted: what is wrong with the last one starts none."""
    from workbench.services.submit.dependencies import Parent
    from workbench.services.submit.prepare import prepare

    chain: dict[str, Parent] = {}
    found = []
    for at, (words, job_id) in enumerate(zip(several.each, several.ids, strict=True)):
        made = prepare(words, home, launch=launch, chain=chain, job_id=job_id)
        if job_id is not None:
            chain[several.names[at]] = Parent(job_id, made.loaded.spec, made.place, made.secrets)
        found.append(made)
    return found


def _numbered(prepared: Prepared, number: int, total: int) -> Prepared:
    """Give a job of a sweep its number as part of its name, so that each can be named."""
    if total == 1:
        return prepared
    spec = prepared.loaded.spec
    name = f"{spec.name[:190]}-{number:0{len(str(total))}}"
    return replace(prepared, loaded=replace(prepared.loaded, spec=replace(spec, name=name)))


def _line(row: JobRow, several: Several, words: Words, number: int) -> str:
    if several.label:
        return f"{nine(row.id)} {row.name}: {' '.join(words.overrides)}"
    return f"{nine(row.id)} {row.name}: {number} of {len(several.each)}, {row.place.runner} at {row.place.backend}"


def _tell_detached(rows: Sequence[JobRow], several: Several, ways: Ways) -> int:
    if ways.json:
        from workbench.terminal.json_output import job_document, print_document

        print_document([job_document(row) for row in rows])
        return 0
    for row in rows:
        print(row.id)
    if not ways.quiet:
        narrate(f"they run on by themselves; `{_come_back(rows, several)}` waits for them")
    return 0


def _come_back(rows: Sequence[JobRow], several: Several) -> str:
    chosen = f"--label {several.label}" if several.label else " ".join(nine(row.id) for row in rows)
    return f"fabric wait {chosen}"


def _follow(
    store: Store, rows: list[JobRow], several: Several, ways: Ways, plan: Plan, policy: Policy
) -> int:
    from workbench.cli.follow.attach import exit_code_of
    from workbench.cli.follow.many import follow_all, tell_ended
    from workbench.cli.follow.report import finish

    ended, code = follow_all(
        store,
        rows,
        policy=policy,
        json=ways.json,
        quiet=bool(ways.quiet),
        come_back=_come_back(rows, several),
        timeout_seconds=plan.timeout_seconds,
    )
    if code is not None:
        return code
    codes = [(row, exit_code_of(row)) for row in ended]
    if not (ways.quiet or ways.json):
        tell_ended(ended, several.label)
    if plan.notices.at_end:
        from workbench.cli.follow.notifications import notify

        notify("fabric", ", ".join(f"{row.name} {row.state.lower()}" for row in ended))
    if plan.wishes:
        return finish(store, codes, plan.wishes)
    return next((each for _, each in codes if each), 0)


def _plans(several: Several, *, json: bool) -> int:
    from workbench.paths import Home, default_home
    from workbench.services.submit.preview import plan_document, plan_of, show_prepared
    from workbench.terminal.json_output import print_document

    prepared = _prepared(several, Home(default_home()), launch=False)
    if json:
        print_document([plan_document(each, plan_of(each)) for each in prepared])
        return 0
    for number, each in enumerate(prepared):
        if number:
            print()
        show_prepared(each)
    return 0
