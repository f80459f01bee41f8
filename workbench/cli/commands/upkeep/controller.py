"""``fabric controller``."""

from __future__ import annotations

from workbench.cli.framework.declare import Family, command
from workbench.cli.framework.options import Json
from workbench.paths import Home, default_home
from workbench.terminal.console import narrate


@command("status", "fabric controller status", "fabric controller status --json")
def status(json: Json = False) -> int:
    """Show whether the controller is running, and for which jobs."""
    from workbench.controller.runtime.client import status as ask_status
    from workbench.services.open_store import existing_store
    from workbench.store.db.home_folder import is_home
    from workbench.store.jobs import open_jobs

    home = Home(default_home())
    found = ask_status(home)
    with existing_store(attends=False) as store:
        waiting = len(open_jobs(store)) if store else 0
    if json:
        from workbench.terminal.json_output import print_document

        print_document(
            {
                "schema": "fabric.controller/1",
                "running": found is not None,
                "pid": found.pid if found else None,
                "version": found.version if found else None,
                "open_jobs": waiting,
                "home": str(home.path),
                "log": str(home.controller_log),
            }
        )
        return 0
    jobs = f"{waiting} open job{'' if waiting == 1 else 's'}"
    if found:
        print(f"running (pid {found.pid}, version {found.version}), {jobs}")
    else:
        starts = "any command that needs it starts it" if is_home(home) else "none runs in a copy of a home"
        print(f"not running, {jobs}; {starts}")
    narrate(f"log: {home.controller_log}")
    return 0


@command("stop", "fabric controller stop")
def stop(json: Json = False) -> int:
    """Stop the controller; jobs keep running, and the next command that needs it starts another."""
    from workbench.controller.runtime.client import stop_controller

    stopped = stop_controller(Home(default_home()))
    if json:
        from workbench.terminal.json_output import print_document

        print_document({"schema": "fabric.controller-stop/1", "stopped": stopped})
    else:
        narrate("stopped; jobs keep running" if stopped else "the controller was not running")
    return 0


controller = Family("controller", "Show or stop the background controller.", (status, stop), default="status")
