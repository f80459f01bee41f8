"""``fabric controller``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.cli.framework.declare import Family, command
from workbench.cli.framework.options import Json
from workbench.paths import Home, default_home
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.services.controller import ControllerReport


@command("status", "fabric controller status", "fabric controller status --json")
def status(json: Json = False) -> int:
    """Show whether the controller is running, and for which jobs."""
    from workbench.services.controller import inspect_controller

    home = Home(default_home())
    _print_report(home, inspect_controller(home), json=json)
    return 0


@command("stop", "fabric controller stop")
def stop(json: Json = False) -> int:
    """Stop the controller; jobs keep running, and the next command that needs it starts another.

    One that does not answer for five seconds is killed: neither jobs nor their data are harmed.
    """
    from workbench.services.controller import end_controller

    stopped = end_controller(Home(default_home()), narrate)
    if json:
        from workbench.terminal.json_output import print_document

        print_document({"schema": "fabric.controller-stop/1", "stopped": stopped})
    else:
        narrate("stopped; jobs keep running" if stopped else "the controller was not running")
    return 0


@command("restart", "fabric controller restart", "fabric controller restart --json")
def restart(json: Json = False) -> int:
    """Stop the controller, also one that does not answer, and start another; jobs keep running."""
    from workbench.services.controller import restart_controller

    home = Home(default_home())
    _print_report(home, restart_controller(home, narrate), json=json)
    return 0


def _print_report(home: Home, found: ControllerReport, *, json: bool) -> None:
    """Print what a controller says of itself, or what is known of one that does not answer."""
    from workbench.services.controller import count_open_jobs
    from workbench.store.db.home_folder import is_home

    waiting = count_open_jobs(home)
    if json:
        from workbench.terminal.json_output import print_document

        print_document(
            {
                "schema": "fabric.controller/1",
                "running": found.pid is not None,
                "answers": found.answers,
                "trouble": found.trouble or None,
                "pid": found.pid,
                "version": found.version or None,
                "open_jobs": waiting,
                "home": str(home.path),
                "log": str(home.controller_log),
            }
        )
        return
    jobs = f"{waiting} open job{'' if waiting == 1 else 's'}"
    if found.pid is None:
        starts = "any command that needs it starts it" if is_home(home) else "none runs in a copy of a home"
        print(f"not running, {jobs}; {starts}")
    elif found.answers:
        print(f"running (pid {found.pid}, version {found.version}), {jobs}")
        if found.trouble:
            narrate(found.trouble)
    else:
        print(f"{found.trouble}, {jobs}; `{found.hint}` ends it and starts another")
    narrate(f"log: {home.controller_log}")


controller = Family(
    "controller",
    "Show, stop or restart the background controller.",
    (status, stop, restart),
    default="status",
)
