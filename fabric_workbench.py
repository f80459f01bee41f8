"""The entry module of the command ``fabric``, and the Python API: ``import fabric_workbench as fabric``.

As the command it lets only our own packages be imported, then runs it. As a module it gives ``run``, ``sweep``,
``chain``, ``job``, ``jobs``, ``records``, ``frame``, ``answer_by``, ``Job`` and the values that it returns,
``JobFailed`` and ``FabricError``, loaded when they are first used::

    job = fabric.run({"name": "digits", "framework": {"command": "python train.py"}}, code="src", wait=True)
    print(job.state, job.metrics()["loss"].last, job.results())

Our packages have plain names (``runners``, ``backends``, ``workbench``, ``screens``). A folder of such a name
on ``PYTHONPATH`` or in the working directory would be imported in their place, so those entries leave
``sys.path`` before anything of ours is imported.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself would cost `fabric --help` a quarter of its start
    from workbench.api.jobs import Checkpoint as Checkpoint
    from workbench.api.jobs import Job as Job
    from workbench.api.jobs import JobFailed as JobFailed
    from workbench.api.jobs import JobMetrics as JobMetrics
    from workbench.api.jobs import Series as Series
    from workbench.api.jobs import answer_by as answer_by
    from workbench.api.jobs import chain as chain
    from workbench.api.jobs import frame as frame
    from workbench.api.jobs import job as job
    from workbench.api.jobs import jobs as jobs
    from workbench.api.jobs import records as records
    from workbench.api.jobs import run as run
    from workbench.api.jobs import sweep as sweep
    from workbench.errors import FabricError as FabricError

API = (
    "Checkpoint", "FabricError", "Job", "JobFailed", "JobMetrics", "Series",
    "answer_by", "chain", "frame", "job", "jobs", "records", "run", "sweep",
)  # fmt: skip
GARBAGE_THRESHOLDS = 50_000, 20, 20
"""Importing makes many objects and no garbage; looking for it after every 700 of them is 4 % of a run's start."""
PACKAGES = ("workbench", "backends", "runners", "screens")

__all__ = list(API)


def main() -> int:
    """Run the command line; return its exit code."""
    if sys.platform == "win32":
        sys.stderr.write("error: fabric runs on Linux and macOS; on Windows use it inside WSL2\n")
        return 78
    _drop_foreign_folders()
    from workbench.cli.framework.main import main as run_command_line

    gc.set_threshold(*GARBAGE_THRESHOLDS)
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


def __getattr__(name: str) -> object:
    if name not in API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _import_ours()
    from workbench.api import jobs as python_api

    value: object = getattr(python_api, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted((*globals(), *API))


def _import_ours() -> None:
    """Import our packages before a folder of the same name beside a script or notebook can take their place."""
    import importlib

    ours = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - as above
    for package in PACKAGES:
        if package not in sys.modules:
            sys.path.insert(0, ours)
            try:
                importlib.import_module(package)
            finally:
                sys.path.remove(ours)
        found = getattr(sys.modules[package], "__file__", None) or ""
        if os.path.dirname(os.path.dirname(os.path.abspath(found))) != ours:  # noqa: PTH100, PTH120 - as above
            raise ImportError(
                f"{package} was imported from {found or 'elsewhere'}; fabric_workbench needs its own"
            )


def command() -> None:
    """Run the command line as a process of its own."""
    code = main()
    from workbench.process_end import end_process

    end_process(code)  # what was printed is flushed


if __name__ == "__main__":
    command()
