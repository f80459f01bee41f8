"""Builds a virtual environment on a host, as a program of its own: a build outlives its caller.

``python environment.py FOLDER REQUIREMENTS PYTHON UV``: in the end FOLDER holds ``.complete`` or ``.failed``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Iterator, List, Mapping

from workbench.learner.platform import system


def build(folder: str, requirements: str, python: str, uv: str) -> int:
    """Build the environment and return the exit code of what failed, 0 when nothing did."""
    inside = os.path.join(folder, "bin", "python")
    for argv in _with_uv(uv, python, folder) if _works(uv) else _with_pip(python, folder):
        code = run([*argv, "-r", requirements] if "install" in argv else argv)
        if code:
            return code
    lister = [uv, "pip", "freeze", "--python", inside] if _works(uv) else [inside, "-m", "pip", "freeze"]
    with open(os.path.join(folder, "packages.txt"), "wb") as listing:
        return subprocess.call(lister, stdout=listing)


def _with_uv(uv: str, python: str, folder: str) -> List[List[str]]:
    inside = os.path.join(folder, "bin", "python")
    return [
        [uv, "venv", "--quiet", "--python", python, folder],
        [uv, "pip", "install", "--python", inside],
    ]


def _with_pip(python: str, folder: str) -> List[List[str]]:
    inside = os.path.join(folder, "bin", "python")
    return [
        [python, "-m", "venv", folder],
        [inside, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"],
    ]


def _works(uv: str) -> bool:
    """Say whether uv is there and runs: what is found under its name may be a shim of something else."""
    if not uv:
        return False
    try:
        return subprocess.call([uv, "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def run(argv: List[str]) -> int:
    """Run a step of the build, named before, and return its exit code."""
    print("$ " + " ".join(argv), flush=True)
    try:
        return subprocess.call(argv)
    except OSError as error:
        print("%s cannot be started: %s" % (argv[0], error.strerror), flush=True)
        return 127


def main(folder: str, requirements: str, python: str, uv: str) -> int:
    """Build, and say in a file how it ended."""
    return finish(folder, build(folder, requirements, python, uv))


def finish(folder: str, code: int) -> int:
    """Write down how a build ended, last of all, and return its exit code; nothing else is left of a failed one."""
    os.makedirs(folder, exist_ok=True)
    if code:
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)
    new = os.path.join(folder, ".new")
    with open(new, "w", encoding="ascii") as stream:
        stream.write("%d\n" % code)
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(new, os.path.join(folder, ".failed" if code else ".complete"))
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:5]))


_ROOTS = ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", "miniconda", "anaconda")


def find_conda(name: str, environment: Mapping[str, str]) -> str:
    """Return the folder of an environment, by name or path, as these variables see it; else empty."""
    for folder in _candidates(name, environment):
        if os.path.isfile(os.path.join(folder, "bin", "python")):
            return folder
    return ""


def _candidates(name: str, environment: Mapping[str, str]) -> Iterator[str]:
    if os.sep in name:
        yield os.path.expanduser(name)
        return
    roots = list(_roots(environment))
    if name == "base":
        yield from roots
        return
    for folder in environment.get("CONDA_ENVS_PATH", "").split(os.pathsep):
        if folder:
            yield os.path.join(folder, name)
    for root in roots:
        yield os.path.join(root, "envs", name)
    for line in system.read_text(os.path.expanduser("~/.conda/environments.txt")).splitlines():
        if os.path.basename(line.strip()) == name:
            yield line.strip()
    yield os.path.expanduser(os.path.join("~/.conda/envs", name))


def _roots(environment: Mapping[str, str]) -> Iterator[str]:
    roots: List[str] = [environment.get("MAMBA_ROOT_PREFIX", "")]
    for variable in ("CONDA_EXE", "MAMBA_EXE"):
        executable = environment.get(variable, "")
        roots.append(os.path.dirname(os.path.dirname(executable)))
    active = environment.get("CONDA_PREFIX", "")
    parent = os.path.dirname(active)
    roots.append(os.path.dirname(parent) if os.path.basename(parent) == "envs" else active)
    for root in roots:
        if root:
            yield root
    for folder in (os.path.expanduser("~"), "/opt"):
        for root in (*_ROOTS, "conda"):
            yield os.path.join(folder, root)
