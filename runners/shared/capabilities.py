"""What each of our runners can do, for the runner itself and for its plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from runners.interface import Capabilities

PROCESS: Final = Capabilities(
    needs="host",
    exec=True,
    shell=True,
    copy=True,
    hands_over=True,
    heeds_wait=True,
    restarts=True,
    finish=True,
    moves_in=True,
)
CONTAINER: Final = Capabilities(
    needs="host",
    uses_image=True,
    exec=True,
    shell=True,
    copy=True,
    hands_over=True,
    heeds_wait=True,
    restarts=True,
    ports=True,
    names_resolve=True,
    builds_images=True,
    moves_in=True,
)
POD: Final = Capabilities(
    needs="cluster",
    uses_image=True,
    exec=True,
    shell=True,
    copy=True,
    ports=True,
    names_resolve=True,
    shared_job_folder=False,
    mounts_stores=False,  # pods have no FUSE
    moves_in=True,
)
MULTINODE_PROCESS: Final = replace(
    PROCESS, needs="hosts", hands_over=False, heeds_wait=False, restarts=False, shared_job_folder=False
)
MULTINODE_CONTAINER: Final = replace(
    CONTAINER,
    needs="hosts",
    hands_over=False,
    heeds_wait=False,
    restarts=False,
    shared_job_folder=False,
    ports=False,
    names_resolve=False,
)
