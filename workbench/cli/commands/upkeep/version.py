"""``fabric version``."""

from __future__ import annotations

import platform
import sys

from workbench.cli.framework.declare import command
from workbench.cli.framework.options import Json
from workbench.version import VERSION


@command("version", "fabric version", "fabric version --json")
def version(json: Json = False) -> None:
    """Print the version."""
    python = platform.python_version()
    if json:
        from workbench.terminal.json_output import print_document

        print_document(
            {
                "schema": "fabric.version/1",
                "version": VERSION,
                "python": python,
                "interpreter": sys.executable,
                "system": platform.platform(),
            }
        )
        return
    print(f"fabric {VERSION} (Python {python})")
