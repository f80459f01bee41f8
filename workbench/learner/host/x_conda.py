"""Finds conda environments by their names without starting conda, which takes a second to say so."""

from __future__ import annotations

import os
from typing import Iterator, List, Mapping

from workbench.learner.platform import system

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
    told: List[str] = [environment.get("MAMBA_ROOT_PREFIX", "")]
    for variable in ("CONDA_EXE", "MAMBA_EXE"):
        executable = environment.get(variable, "")
        told.append(os.path.dirname(os.path.dirname(executable)))
    active = environment.get("CONDA_PREFIX", "")
    parent = os.path.dirname(active)
    told.append(os.path.dirname(parent) if os.path.basename(parent) == "envs" else active)
    for root in told:
        if root:
            yield root
    for folder in (os.path.expanduser("~"), "/opt"):
        for root in (*_ROOTS, "conda"):
            yield os.path.join(folder, root)
