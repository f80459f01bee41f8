"""What ``fabric run`` does with its words: prepares, submits, follows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.cli.run_words import Words


@dataclass(frozen=True, slots=True)
class Ways:
    """How a job is followed, and what happens at its end; None leaves it to variables and configuration."""

    plan: bool = False
    detach: bool | None = None
    on_interrupt: str | None = None
    no_prefix: bool | None = None
    quiet: bool | None = None
    json: bool = False


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
    )


def run_words(words: Words, ways: Ways) -> int:
    """Start what the words say, follow it, and return the exit code."""
    if ways.plan:
        from workbench.cli.planning import show_plan

        return show_plan(words, json=ways.json)
    from workbench.cli.interruption import policy_of
    from workbench.cli.launching import prepare
    from workbench.cli.open_store import open_store
    from workbench.cli.submitting import ControllerStart, submit

    ways = settled(ways)
    policy = policy_of(ways.on_interrupt)
    quiet = bool(ways.quiet)
    with open_store() as store, ControllerStart(store.home):
        prepared = prepare(words, store.home, launch=True)
        row = submit(store, prepared, keep_manifest=not words.manifest, quiet=quiet or ways.json)
        if ways.detach:
            from workbench.cli.submitting import tell_detached

            return tell_detached(row, json=ways.json, quiet=quiet)
        from workbench.cli.attaching import attach_to

        return attach_to(
            store, row, policy=policy, json=ways.json, prefix=not ways.no_prefix, quiet=quiet, fresh=True
        )
