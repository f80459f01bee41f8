"""How jobs are followed, and what happens at their end: the options of ``run``, ``attach``, ``wait`` and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from workbench.errors import UsageError
from workbench.services.inspect.job_report import ReportFiles
from workbench.values import dataclass

if TYPE_CHECKING:
    from workbench.cli.follow.signals import Policy
    from workbench.metrics.conditions import Condition


NO_FILES: Final = ReportFiles()


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """How a command follows jobs; every value is checked already."""

    on_interrupt: Policy = "halt"
    """What a signal does to the jobs."""
    detach: bool = False
    accept_loss: bool = False
    """Whether a detached job may lose results that nobody fetches in time."""
    first_trial: bool = False
    """Whether the first trial of a search is followed, which goes on in the background either way."""
    json: bool = False
    prefix: bool = True
    """Whether lines of several learners begin with the learner's number."""
    quiet: bool = False
    timeout_seconds: float | None = None
    """When jobs are halted, counted from the start of the command."""
    notify: bool = False
    """Whether a person is notified at the end."""
    notify_when: tuple[Condition, ...] = ()
    """Conditions at which a person is notified while the job runs."""
    require: tuple[Condition, ...] = ()
    """Conditions that have to hold at the end."""
    report_files: ReportFiles = NO_FILES
    """Files that are written at the end."""
    stays: bool = False
    """Whether this command itself was asked for something that needs it to stay, also with what runs by itself."""

    @property
    def needs_the_end(self) -> bool:
        """Whether there is something to check or to write when the jobs have ended."""
        return bool(self.require or self.report_files != NO_FILES)


def read_follow_options(
    *,
    on_interrupt: str | None,
    detach: bool,
    accept_loss: bool,
    first_trial: bool,
    json: bool,
    no_prefix: bool,
    quiet: bool,
    timeout: str | None,
    notify: bool,
    notify_when: tuple[str, ...],
    require: tuple[str, ...],
    junit: str,
    summary: str,
) -> FollowOptions:
    """Check the options of ``run``; ``FABRIC_*`` variables and the configuration supply those that are not given.

    Raises:
        UsageError: one cannot be read, or needs a command that waits for the end.
    """
    from workbench.cli.follow.signals import policy_of
    from workbench.config import load_config, resolve_option
    from workbench.services.durations import seconds_of
    from workbench.services.filters import read_conditions

    if first_trial and (detach or json):
        raise UsageError(
            "--follow-first-trial prints what the trial prints; it goes with neither --detach nor --json",
            hint="`fabric logs ID --follow --json` follows a trial that has begun",
        )
    config = load_config()

    def resolved(name: str, given: Any, default: Any = None) -> Any:
        return resolve_option(name, given, config, default=default)[0]

    limit = resolved("timeout", timeout)
    when = resolved("notify_when", notify_when or None) or ()
    policy = resolved("on_interrupt", on_interrupt)
    options = FollowOptions(
        detach=bool(resolved("detach", detach or None, False)) and not first_trial,
        accept_loss=accept_loss,
        first_trial=first_trial,
        json=json,
        prefix=not resolved("no_prefix", no_prefix or None, False),
        quiet=bool(resolved("quiet", quiet or None, False)),
        timeout_seconds=None if limit is None else seconds_of(limit, "--timeout"),
        notify=bool(resolved("notify", notify or None, False)),
        notify_when=read_conditions((when,) if isinstance(when, str) else when),
        require=read_conditions(require),
        report_files=ReportFiles(junit, summary),
        on_interrupt=policy_of(policy),
        stays=bool(require or junit or summary or notify or timeout is not None),
    )
    if options.detach and options.needs_the_end:
        raise UsageError(
            "--require, --junit and --summary need a command that waits for the end",
            hint="omit --detach, or use them with `fabric wait`",
        )
    if options.detach and timeout is not None:
        raise UsageError(
            "--timeout needs a command that waits for the end",
            hint=f"--set max_runtime={timeout} is enforced where the job runs",
        )
    return options
