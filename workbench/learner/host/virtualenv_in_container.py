"""Builds a virtual environment with an image's own Python, inside a container of it: ``FOLDER REQUIREMENTS WHEEL``.

What the image has stays importable in it. ``WHEEL`` is pip's, for images that have none; it may be missing.
In the end FOLDER holds ``.complete`` or ``.failed``, and may be read by whoever the image runs jobs as.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import List

from workbench.learner.host.virtualenv import finish, run

PIP = ["install", "--no-input", "--disable-pip-version-check", "--no-cache-dir"]


def build(folder: str, requirements: str, wheel: str) -> int:
    """Build the environment and return the exit code of what failed, 0 when nothing did."""
    if importlib.util.find_spec("venv") is None:
        print("the image's Python has no module venv (Debian's package python3-venv)")
        return 1
    code = run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", folder])
    if code:
        return code
    python = os.path.join(folder, "bin", "python")
    pip = _pip(python, wheel)
    with open(requirements, encoding="utf-8") as lines:
        has_requirements = bool(lines.read().strip())
    if has_requirements and not pip:
        print("there is no pip, neither in the image nor in the Python that keeps its jobs")
        return 1
    if has_requirements:
        code = run([*pip, *PIP, "-r", requirements])
        if code:
            return code
    with open(os.path.join(folder, "packages.txt"), "wb") as listing:
        return subprocess.call([*pip, "freeze"], stdout=listing) if pip else 0


def _pip(python: str, wheel: str) -> List[str]:
    if importlib.util.find_spec("pip") is not None:
        return [python, "-m", "pip"]
    return [python, os.path.join(wheel, "pip")] if os.path.exists(wheel) else []


def main(folder: str, requirements: str, wheel: str) -> int:
    """Build, and say in a file how it ended."""
    os.umask(0o022)
    os.chmod(folder, 0o755)  # it was made by whoever keeps it from others by the folder above
    code = build(folder, requirements, wheel)
    sys.stdout.flush()
    return finish(folder, code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
