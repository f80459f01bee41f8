"""Streams into a waiting init container what is too large for a Secret: code, and what earlier attempts made."""

from __future__ import annotations

import hashlib
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backends.cluster import Cluster
from backends.failures import translated
from runners.pod_host import open_host
from runners.pod_names import PREPARE
from workbench.learner.pod_prepare import ARRIVED, MADE
from workbench.paths import Home, JobFolder, default_home


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


def made_before(job_id: str) -> JobFolder | None:
    """Return a job's folder here where earlier attempts have left results or checkpoints in it."""
    job = Home(default_home()).job(job_id)
    with translated():
        for folder in (job.results, job.checkpoints):
            if folder.is_dir() and any(folder.iterdir()):
                return job
    return None


def send_made(cluster: Cluster, pod: Mapping[str, Any], job: JobFolder) -> None:
    """Send what earlier attempts have made to a pod whose init container waits for it."""
    host = open_host(cluster, pod["metadata"]["name"], container=PREPARE)
    try:
        with translated(), tempfile.TemporaryFile() as stream:
            with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as tar:
                for name, folder in (("results", job.results), ("checkpoints", job.checkpoints)):
                    if folder.is_dir():
                        tar.add(folder, arcname=name)
            stream.seek(0)
            host.put(stream, MADE)
    finally:
        host.close()
