"""Where a collector reads: what ``in:`` of ``evaluation_metrics`` means on the host."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Callable, Iterable, Iterator, List, Mapping, Sequence, Tuple

from workbench.learner.collectors.interface import Context
from workbench.learner.platform import beneath
from workbench.learner.texts import expression

OWN_OUTPUT_NAMES = ("training-log.txt", "latest-log")
"""Files in which FfDL kept what a learner prints; here that is its own output."""

_SHARED_BY_JOBS = "_wml_checkpoints"
"""A folder in a result store into which other jobs write, too."""

_LEARNER_FOLDER = expression(r"learner-\d+$")
_VARIABLE = expression(r"\$(?:\{(\w+)\}|(\w+))")
_CONTAINER_JOB_DIR = "/job"


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Replace ``$NAME`` and ``${NAME}``; a variable that is not there stays as written."""

    def value(match: "re.Match[str]") -> str:
        return environment.get(match.group(1) or match.group(2), match.group(0))

    return _VARIABLE.sub(value, text)


def job_folders(context: Context, names: Sequence[str]) -> List[Tuple[str, str]]:
    """Return folders of the job, with the variables that name them: none twice, in another, or shared by jobs."""
    known = {**context.environment, "LOG_DIR": context.log_dir}
    given = [(name, os.path.normpath(known[name])) for name in names if known.get(name)]
    found: List[Tuple[str, str]] = []
    for name, path in given:
        is_inside = any(path.startswith(other + os.sep) for _name, other in given)
        if not is_inside and _SHARED_BY_JOBS not in path and path not in [other for _name, other in found]:
            found.append((name, path))
    return found


def path_of(source: str, context: Context) -> str:
    """Return the file or folder that ``in:`` names, LOG_DIR where it names none.

    A relative path lies in JOB_STATE_DIR; so does one in ``/job``, the job's folder in FfDL's containers,
    where there is no such folder.
    """
    known = {"JOB_STATE_DIR": context.job_state_dir, "LOG_DIR": context.log_dir, **context.environment}
    path = expand(source.strip(), known)
    if not path:
        return os.path.normpath(context.log_dir)
    if path.startswith(_CONTAINER_JOB_DIR + "/") and not os.path.isdir(_CONTAINER_JOB_DIR):
        path = path[len(_CONTAINER_JOB_DIR) + 1 :]
    return os.path.normpath(os.path.join(context.job_state_dir, path))


def is_own_output(path: str, context: Context) -> bool:
    """Whether a path is a file in which FfDL kept what the learner prints."""
    folder, name = os.path.split(path)
    return name in OWN_OUTPUT_NAMES and folder in (context.log_dir, context.job_state_dir)


def walk(
    folder: str,
    context: Context,
    matches: Callable[[str], bool],
    *,
    depth: int,
    watch: Callable[[str], None] = lambda _folder: None,
) -> Iterator[Tuple[str, str, str]]:
    """Yield path, name and folder of the files whose base name matches.

    Name and folder are below LOG_DIR, or below what is walked where that lies elsewhere. ``folder`` may be
    a file, which is then the only one, whether it matches or not. Links to folders are not followed. ``watch`` is
    called with each folder that is searched, with a file's, and with the one that a missing folder would be made in.
    """
    if _is_file(folder, context):
        watch(os.path.dirname(folder))
        name = os.path.relpath(folder, _base(os.path.dirname(folder), context))
        yield folder, name, os.path.dirname(name)
        return
    base = _base(folder, context)
    if not os.path.isdir(folder):
        watch(_nearest(folder))
    # There may be nothing yet, or it leads out.
    with contextlib.suppress(OSError), beneath.opened(folder, context.writable) as (root, inside):
        for path, descriptor, folders, files in root.walk(inside):
            watch("/proc/self/fd/%d" % descriptor)
            if len(path.split(os.sep)) - (not path) >= depth:
                folders[:] = []
            here = os.path.normpath(os.path.join(folder, path))
            below = os.path.relpath(here, base)
            below = "" if below == os.curdir else below
            for file in files:
                if matches(file):
                    yield os.path.join(here, file), os.path.join(below, file), below


def _nearest(folder: str) -> str:
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def _is_file(path: str, context: Context) -> bool:
    """Say whether a path is a file rather than a folder; only for what to call it, not for what to read."""
    try:
        os.close(beneath.open_plainly(path, context.writable))
        return True
    except OSError:
        return False


def _base(folder: str, context: Context) -> str:
    inside = os.path.join(folder, "").startswith(os.path.join(context.log_dir, ""))
    return context.log_dir if context.log_dir and inside else folder


def subid_of(folder: str) -> str:
    """Return the sub-run that a folder below LOG_DIR belongs to: ``learner-N`` or a number in its path."""
    for part in folder.split(os.sep):
        if part.isdigit() or (part.startswith("learner-") and part[len("learner-") :].isdigit()):
            return part
    return ""


def without_learners(folder: str) -> str:
    """Return a path without the folders ``learner-N``, which say who writes and not in which run."""
    return os.sep.join(part for part in folder.split(os.sep) if not _LEARNER_FOLDER.match(part))


def run_labels(path: str, others: Iterable[str]) -> List[str]:
    """Return what may tell a run from others: the ends of its path that no other path has, the shortest first.

    The whole path is the last one, be it the end of another.
    """
    ends = [other.split(os.sep) for other in others if other != path]
    parts = [part for part in path.split(os.sep) if part]
    return [
        os.sep.join(parts[-count:])
        for count in range(1, len(parts) + 1)
        if count == len(parts) or not any(end[-count:] == parts[-count:] for end in ends)
    ]
