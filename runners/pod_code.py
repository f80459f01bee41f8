"""Streams code that is too large for a Secret into the init container that waits for it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backends.cluster import Cluster
from backends.failures import translated
from runners.pod_host import open_host
from runners.pod_names import PREPARE
from workbench.learner.pod_prepare import ARRIVED


def send_code(cluster: Cluster, pod: Mapping[str, Any], path: str) -> None:
    """Send a snapshot to a pod whose init container runs; it appears there whole, by its checksum.

    Raises:
        PlaceUnreachable: the connection broke; sent again it goes on where it was cut off.
    """
    host = open_host(cluster, pod["metadata"]["name"], container=PREPARE)
    try:
        with translated(), Path(path).open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            stream.seek(0)
            host.put(stream, ARRIVED, sha256=sha256)
    finally:
        host.close()
