"""The entry module of the command ``fabric``: lets only our own packages be imported, then runs it.

Our packages have plain names (``runners``, ``backends``, ``workbench``, ``screens``). A folder of such a name
on ``PYTHONPATH`` or in the working directory would be imported in their place, so those entries leave
``sys.path`` before anything of ours is imported.
"""

from __future__ import annotations

import gc
import os
import sys


def main() -> int:
    """Run the command line; return its exit code."""
    if sys.platform == "win32":
        sys.stderr.write("error: fabric runs on Linux and macOS; on Windows use it inside WSL2\n")
        return 78
    _drop_foreign_folders()
    from workbench.cli.main import main as run_command_line

    # Importing makes many objects and no garbage; looking for it after every 700 of them is 4 % of a run's start.
    gc.set_threshold(50_000, 20, 20)
    return run_command_line(sys.argv[1:])


def _drop_foreign_folders() -> None:
    ours = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs every command 5 ms of start
    told = os.environ.get("PYTHONPATH", "")
    foreign = {os.path.abspath(entry) for entry in told.split(os.pathsep)} if told else set()  # noqa: PTH100
    if not sys.flags.safe_path and getattr(sys.modules["__main__"], "__spec__", None):
        foreign.add(os.getcwd())  # noqa: PTH109 - `python -m` puts the working directory first
    sys.path[:] = [entry for entry in sys.path if entry == ours or (entry and entry not in foreign)]
    if ours not in sys.path:
        sys.path.append(ours)


if __name__ == "__main__":
    sys.exit(main())
