"""Gives the terminal to ``$EDITOR`` for a while; what is read there is a copy."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

if TYPE_CHECKING:
    from screens.app import FabricApp


def read_in_editor(app: FabricApp, shown: str) -> None:
    """Open a text in the user's editor; the app steps aside and comes back."""
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "manifest.yml"
        file.write_text(shown, encoding="utf-8")
        try:
            with app.suspend():
                subprocess.run([*command, str(file)], check=False)
        except SuspendNotSupported:
            app.tell("this terminal cannot be lent to an editor", "warning")
        except OSError as error:
            app.tell(f"{command[0]} cannot be started: {error.strerror}; set EDITOR", "error")
