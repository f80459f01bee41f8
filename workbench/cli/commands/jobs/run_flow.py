"""What ``fabric run`` does with its words: prepares, submits, follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from workbench.errors import UsageError
from workbench.formats import count
from workbench.job import JobId, nine
from workbench.spec import SWEEP_LABEL
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.cli.follow.attach import Notices
    from workbench.cli.follow.report import Wishes
    from workbench.cli.follow.signals import Policy
    from workbench.paths import Home
    from workbench.services.submit.options import Words
    from workbench.services.submit.prepare import Prepared
    from workbench.store.db.database import Store
    from workbench.store.db.rows import JobRow


@dataclass(frozen=True, slots=True)
class Ways:
    """How a job is followed, and what happens at its end; None leaves it to variables and configuration."""

    plan: bool = False
    detach: bool | None = None
    accept_loss: bool = False
    """Whether results may be lost that nobody fetches in time."""
    on_interrupt: str | None = None
    no_prefix: bool | None = None
    quiet: bool | None = None
    json: bool = False
    timeout: str | None = None
    """A length of time."""
    require: tuple[str, ...] = ()
    junit: str = ""
    summary: str = ""
    notify: bool | None = None
    notify_when: str | tuple[str, ...] | None = None


def settled(ways: Ways) -> Ways:
    """Return the same with what ``FABRIC_*`` variables and the configuration say where the words say nothing."""
    from workbench.config import load_config, resolve_option

    config = load_config()

    def said(name: str, default: Any = None) -> Any:
        return resolve_option(name, getattr(ways, name), config, default=default)[0]

    return replace(
        ways,
        detach=said("detach", False),
        on_interrupt=said("on_interrupt"),
        no_prefix=said("no_prefix", False),
        quiet=said("quiet", False),
        timeout=said("timeout"),
        notify=said("notify", False),
        notify_when=said("notify_when"),
    )


def run_words(words: Words, ways: Ways) -> int:
    """Start what the words say, follow it, and return the exit code."""
    from workbench.services.submit.chains import documents_of
    from workbench.services.submit.options import sort_out
    from workbench.services.submit.sweeps import expanded

    words = sort_out(words)
    documents = documents_of(words)
    # What was read once is not read again: standard input cannot be.
    words = documents[0] if len(documents) == 1 else words
    variants = expanded(words.overrides)
    if len(documents) > 1 or len(variants) > 1 or words.at_most is not None:
        return run_many(words, documents, variants, ways)
    if ways.plan:
        from workbench.services.submit.preview import show_plan

        return show_plan(words, json=ways.json)
    return _run_one(words, ways)


def _run_one(words: Words, ways: Ways) -> int:
    from workbench.cli.follow.signals import policy_of
    from workbench.services.open_store import open_store
    from workbench.services.submit.prepare import prepare
    from workbench.services.submit.submit import ControllerStart, submit

    told, ways = ways, settled(ways)
    plan = Plan.of(ways, told)
    policy = policy_of(ways.on_interrupt)
    quiet = bool(ways.quiet)
    with open_store() as store, ControllerStart(store.home):
        prepared = prepare(words, store.home, launch=True)
        if ways.detach and not ways.accept_loss:
            from workbench.services.submit.preview import refuse_loss

            refuse_loss(prepared)
        row = submit(store, prepared, keep_manifest=not words.manifest, quiet=quiet or ways.json)
        if ways.detach:
            from workbench.services.submit.submit import tell_detached

            return tell_detached(row, json=ways.json, quiet=quiet)
        from workbench.cli.follow.attach import attach_to

        code = attach_to(
            store,
            row,
            policy=policy,
            json=ways.json,
            prefix=not ways.no_prefix,
            quiet=quiet,
            fresh=True,
            notices=plan.notices,
            timeout_seconds=plan.timeout_seconds,
        )
        return _finish(store, row, code, plan.wishes)


def _finish(store: Store, row: JobRow, code: int, wishes: Wishes) -> int:
    from workbench.cli.follow.report import finish
    from workbench.services.follow.job_text import is_over
    from workbench.store.jobs import job

    now = job(store, row.id) or row
    # Who has left the job knows nothing of its end.
    return finish(store, [(now, code)], wishes) if wishes and is_over(now) else code


@dataclass(frozen=True, slots=True)
class Plan:
    """What the ways come to, once they are understood; all of it is checked before anything starts."""

    timeout_seconds: float | None
    notices: Notices
    wishes: Wishes

    @classmethod
    def of(cls, ways: Ways, told: Ways) -> Plan:
        """Understand the ways; ``told`` is what the words alone say of them.

        Raises:
            UsageError: one of them cannot be read, or needs somebody who waits.
            CannotWrite: a report cannot be written.
        """
        from workbench.cli.follow.attach import Notices
        from workbench.cli.follow.report import Wishes, check
        from workbench.errors import UsageError
        from workbench.services.durations import seconds_of
        from workbench.services.filters import read_conditions

        when = (ways.notify_when,) if isinstance(ways.notify_when, str) else ways.notify_when or ()
        plan = cls(
            None if ways.timeout is None else seconds_of(ways.timeout, "--timeout"),
            Notices(bool(ways.notify), read_conditions(when)),
            Wishes(read_conditions(ways.require), ways.junit, ways.summary),
        )
        if ways.detach and plan.wishes:
            raise UsageError(
                "--require, --junit and --summary need somebody who waits for the end",
                hint="leave --detach out, or use them with `fabric wait`",
            )
        if ways.detach and told.timeout is not None:
            raise UsageError(
                "--timeout needs somebody who waits for the end",
                hint=f"--set max_runtime={told.timeout} is kept at the place",
            )
        check(plan.wishes)
        return plan


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
        from workbench.services.inspect.job_document import job_document
        from workbench.terminal.json_output import print_document

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
