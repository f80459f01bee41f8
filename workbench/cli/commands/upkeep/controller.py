"""``fabric controller``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.cli.framework.declare import Family, command
from workbench.cli.framework.options import Json
from workbench.paths import Home, default_home
from workbench.terminal.console import narrate

if TYPE_CHECKING:
    from workbench.controller.client.connect import ControllerStatus
    from workbench.controller.client.hang import UnansweringController


@command("status", "fabric controller status", "fabric controller status --json")
def status(json: Json = False) -> int:
    """Show whether the controller is running, and for which jobs."""
    from workbench.controller.client.connect import status as ask_status
    from workbench.controller.client.hang import unanswering

    home = Home(default_home())
    found = ask_status(home)
    _print_status(home, found, None if found else unanswering(home, after=0.0), json=json)
    return 0


@command("stop", "fabric controller stop")
def stop(json: Json = False) -> int:
    """Stop the controller; jobs keep running, and the next command that needs it starts another.

    One that does not answer for five seconds is killed: neither jobs nor their data are harmed.
    """
    from workbench.controller.client.connect import end_controller

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
    from workbench.controller.client.connect import restart_controller
    from workbench.errors import InputMissing

    home = Home(default_home())
    if not home.database.exists():
        raise InputMissing(
            f"{home.path} has no jobs, and no controller", hint="`fabric run` starts the first job"
        )
    _print_status(home, restart_controller(home, narrate), None, json=json)
    return 0


def _print_status(
    home: Home, found: ControllerStatus | None, silent: UnansweringController | None, *, json: bool
) -> None:
    """Print what a controller says of itself, or what is known of one that does not answer."""
    from workbench.services.open_store import existing_store
    from workbench.store.db.home_folder import is_home
    from workbench.store.jobs import open_jobs

    with existing_store(attends=False) as store:
        waiting = len(open_jobs(store)) if store else 0
    there = found or silent
    trouble = found.trouble or found.untidy if found else silent.text if silent else ""
    if json:
        from workbench.terminal.json_output import print_document

        print_document(
            {
                "schema": "fabric.controller/1",
                "running": there is not None,
                "answers": found is not None,
                "trouble": trouble or None,
                "pid": there.pid if there else None,
                "version": there.version if there else None,
                "open_jobs": waiting,
                "home": str(home.path),
                "log": str(home.controller_log),
            }
        )
        return
    jobs = f"{waiting} open job{'' if waiting == 1 else 's'}"
    if found:
        print(f"running (pid {found.pid}, version {found.version}), {jobs}")
        if trouble:
            narrate(trouble)
    elif silent:
        from workbench.controller.client.hang import RESTART

        print(f"{trouble}, {jobs}; `{RESTART}` ends it and starts another")
    else:
        starts = "any command that needs it starts it" if is_home(home) else "none runs in a copy of a home"
        print(f"not running, {jobs}; {starts}")
    narrate(f"log: {home.controller_log}")


controller = Family(
    "controller",
    "Show, stop or restart the background controller.",
    (status, stop, restart),
    default="status",
)
