"""Builds the environment of ``requirements:`` in a pod, with the image's own Python, before the learner starts."""

from __future__ import annotations

import glob
import os
import subprocess
import sys

from workbench.learner.pod import config

TYPE_CHECKING = False  # the real one costs every learner's start the import of typing
if TYPE_CHECKING:
    from workbench.learner.pod.config import PodConfig

LOG = config.JOURNAL + "/build.log"
LIST = config.JOURNAL + "/requirements.txt"
PACKAGE = "package "
"""How a line of the container's own log begins that names what was installed."""

SHOWN_LINES = 8


class NotBuilt(Exception):
    """The environment could not be built; the second argument is what was printed last."""


def build(pod: PodConfig) -> None:
    """Build the environment of requirements, unless the job has none or it is there.

    Raises:
        NotBuilt: with the last lines of what was printed.
    """
    requirements = pod.document.get("requirements")
    if not requirements or os.path.exists(config.ENVIRONMENT + "/.complete"):
        return
    os.makedirs(config.ENVIRONMENT, exist_ok=True)
    with open(LIST, "w", encoding="utf-8") as lines:
        lines.writelines(line + "\n" for line in requirements["lines"])
    environment = {**os.environ, **requirements["environment"], "HOME": config.HOME}
    environment.update(PYTHONPATH=config.AGENT, PYTHONDONTWRITEBYTECODE="1")
    program = [sys.executable, "-m", "workbench.learner.host.virtualenv_in_container"]
    with open(LOG, "ab") as log:
        argv = [*program, config.ENVIRONMENT, LIST, _bundled_pip()]
        code = subprocess.call(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
    if code:
        raise NotBuilt("the environment of requirements could not be built", _last_lines())
    with open(config.ENVIRONMENT + "/packages.txt", encoding="utf-8") as packages:
        for line in packages:
            sys.stdout.write(PACKAGE + line)
    sys.stdout.flush()


def _bundled_pip() -> str:
    """Return the wheel of pip that comes with the image's Python, for images without an installed one."""
    try:
        import ensurepip

        folders = [os.path.dirname(ensurepip.__file__) + "/_bundled"]
    except ImportError:
        folders = []
    found = [
        path for folder in [*folders, "/usr/share/python-wheels"] for path in glob.glob(folder + "/pip-*.whl")
    ]
    return found[0] if found else "-"


def _last_lines() -> str:
    with open(LOG, "rb") as log:
        text = log.read()[-8192:].decode("utf-8", "replace")
    return "\n".join(line.rstrip() for line in text.strip().splitlines()[-SHOWN_LINES:])
