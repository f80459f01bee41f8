"""A small pod that reads what lies on a claim: waited for with its reasons, then spoken to as a host."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Final

from backends.contract.cluster import Cluster, Document
from backends.contract.host import Host
from runners.pod.container_host import open_host
from runners.pod.status import waits
from workbench.errors import RunnerError

START_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.3


@contextmanager
def reader(cluster: Cluster, find: Callable[[], Iterable[Document]], what: str) -> Iterator[Host]:
    """Wait until a pod runs and give it as a host; whoever made it removes it.

    Args:
        cluster: where it is.
        find: looks for it; nothing as long as it is not there.
        what: what to call it in a sentence: "The pod x, which reads y,".

    Raises:
        RunnerError: it does not start in two minutes, or has ended.
    """
    with closing(open_host(cluster, _running(find, what))) as host:
        yield host


def _running(find: Callable[[], Iterable[Document]], what: str) -> str:
    until, why = time.monotonic() + START_SECONDS, ""
    while time.monotonic() < until:
        for pod in find():
            phase = (pod.get("status") or {}).get("phase")
            if phase == "Running":
                return str(pod["metadata"]["name"])
            if phase in ("Failed", "Succeeded"):
                raise RunnerError(f"{what} has ended: it is {phase.lower()}.")
            why = waits(pod) or why
        time.sleep(_LOOK_SECONDS)
    raise RunnerError(f"{what} does not start{f': it {why}' if why else ''}.")
