"""What ``fabric run`` does with its words: prepares, submits, follows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.cli.follow.attach import Notices
    from workbench.cli.follow.report import Wishes
    from workbench.services.submit.options import Words
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
        from workbench.cli.commands.jobs.x_running_many import run_many

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
        from workbench.services.x_conditions import read_conditions

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
