"""Sends files that are too large for a Secret to waiting init containers: code, rclone, earlier results."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import platform
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, cast

from backends.contract.cluster import Cluster
from backends.contract.errors import translated
from runners.interface import LaunchProgress, LaunchRequest
from runners.pod.container_host import OutputReader, open_host
from runners.pod.names import PREPARE
from runners.pod.sh_files import ShellFiles
from runners.shared.code import ProgressReader
from runners.shared.data_stores import moved_at
from runners.shared.store_setup import host_rclone, local_rclone
from workbench.errors import BackendUnreachable, LaunchRefused
from workbench.learner.pod import config
from workbench.learner.pod.config import NO_PYTHON, RCLONE_PACKED
from workbench.learner.pod.init_container import ARRIVED, MADE
from workbench.paths import Home, JobFolder, default_home

SENDING: Final = "sends files to its pods"
"""What a launch reports meanwhile."""

CHUNK_BYTES: Final = 384 * 1024
"""How much of a file is sent in one here-document: a shell keeps it in memory, a third larger in base64."""

UNPACKED: Final = config.JOURNAL + "/code.arrived"
"""The file that marks complete code."""


def send_code_without_python(cluster: Cluster, pod: str, archive: Path, progress: LaunchProgress) -> None:
    """Send a snapshot to an image without Python; until it is complete the container waits.

    Raises:
        LaunchRefused: the image has neither tar nor base64.
        BackendUnreachable: the connection broke; the next try sends all of it again.
    """
    files = ShellFiles(cluster, pod, PREPARE)
    if files.has("tar"):
        with archive.open("rb") as stream:
            files.put(ARRIVED, _reporting(stream, progress), 0o600)
        return
    if not files.has("base64"):
        raise LaunchRefused(
            "The image has no Python 3.8, no tar and no base64, so code of this size cannot be sent to it.",
            hint="put large files into a data store or a volume, or take an image with tar",
        )
    command = cluster.exec(pod, PREPARE, ["sh", "-s"], stdin=True)
    with tarfile.open(archive, "r:*") as tar:
        for piece in _script(tar):
            progress(SENDING, stage="preparing")
            command.write(piece)
    reader = OutputReader(command)
    reader.readall()
    if command.wait() != 0:
        lines = reader.stderr.decode("utf-8", "replace").strip().splitlines()
        raise LaunchRefused(
            f"The code cannot be unpacked in the image: {lines[-1] if lines else 'no reason'}."
        )


def _script(tar: tarfile.TarFile) -> Iterator[bytes]:
    """Yield a shell script that creates the files of an archive."""
    yield f"set -e\nmkdir -p {config.MODEL}\ncd {config.MODEL}\n".encode()
    for member in tar:
        path = shlex.quote(f"./{member.name}").encode("utf-8", "surrogateescape")
        parent, slash, _ = f"./{member.name}".rpartition("/")
        above = shlex.quote(parent + slash).encode("utf-8", "surrogateescape")
        if member.isdir():
            yield b"mkdir -p %s\n" % path
        elif member.issym():
            target = shlex.quote(member.linkname).encode("utf-8", "surrogateescape")
            yield b"mkdir -p %s; ln -sfn %s %s\n" % (above, target, path)
        elif (content := tar.extractfile(member)) is not None:
            yield b"mkdir -p %s; : >%s\n" % (above, path)
            yield from _lines(content, path)
            yield b'[ "$(wc -c <%s)" -eq %d ]; chmod %o %s\n' % (path, member.size, member.mode & 0o777, path)
    # exit: the shell must not wait for the end of its input.
    yield f": >{UNPACKED}\nexit 0\n".encode()


def _lines(content: IO[bytes], path: bytes) -> Iterator[bytes]:
    while data := content.read(CHUNK_BYTES):
        yield b"base64 -d >>%s <<'='\n%s=\n" % (path, base64.encodebytes(data))


PACKING: Final = 1
"""gzip's level: a higher one takes three times as long and saves a tenth."""


def send_code(cluster: Cluster, pod: Mapping[str, Any], path: str, progress: LaunchProgress) -> None:
    """Send a snapshot to a pod whose init container waits; it appears there complete and verified.

    It ends when ``progress`` raises: the launch was called off.

    Raises:
        BackendUnreachable: the connection broke; the next try continues there.
    """
    name = pod["metadata"]["name"]
    try:
        host = open_host(cluster, name, container=PREPARE)
    except BackendUnreachable as error:
        if NO_PYTHON not in error.message:
            raise
        with translated():
            send_code_without_python(cluster, name, Path(path), progress)
        return
    try:
        with translated(), Path(path).open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            stream.seek(0)
            host.put(_reporting(stream, progress), ARRIVED, sha256=sha256)
    finally:
        host.close()


def earlier_results(job_id: str) -> JobFolder | None:
    """Return a job's folder here if it has results or checkpoints of earlier attempts, else None."""
    job = Home(default_home()).job(job_id)
    with translated():
        for folder in (job.results, job.checkpoints):
            if folder.is_dir() and any(folder.iterdir()):
                return job
    return None


def has_just_moved(request: LaunchRequest) -> bool:
    """Return whether a job went on in this cluster, and no learner has begun there yet as far as is known here."""
    moved, job = moved_at(request), Home(default_home()).job(request.attempt.job_id)
    attempts = range(moved, request.attempt.attempt)
    return bool(moved) and not any(job.attempt(number).learner(1).records.exists() for number in attempts)


def send_earlier_results(
    cluster: Cluster, pod: Mapping[str, Any], job: JobFolder, progress: LaunchProgress
) -> None:
    """Send results and checkpoints of earlier attempts to a pod whose init container waits."""
    host = open_host(cluster, pod["metadata"]["name"], container=PREPARE)
    try:
        with translated(), tempfile.TemporaryFile() as stream:
            with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as tar:
                for name, folder in (("results", job.results), ("checkpoints", job.checkpoints)):
                    if folder.is_dir():
                        tar.add(folder, arcname=name)
            stream.seek(0)
            host.put(_reporting(stream, progress), MADE)
    finally:
        host.close()


def send_rclone(cluster: Cluster, pod: Mapping[str, Any], progress: LaunchProgress) -> None:
    """Send rclone to a pod whose init container waits, unless its image has a recent one.

    Raises:
        LaunchRefused: this machine has none, or one for another architecture.
        BackendUnreachable: the connection broke; the next try continues there.
    """
    host = open_host(cluster, pod["metadata"]["name"], container=PREPARE)
    try:
        if host_rclone(host):
            return
        packed = packed_rclone(host.identity().architecture)
        with translated(), packed.open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
            stream.seek(0)
            host.put(_reporting(stream, progress), RCLONE_PACKED, sha256=sha256)
    finally:
        host.close()


def _reporting(stream: BinaryIO | IO[bytes], progress: LaunchProgress) -> BinaryIO:
    """Return a file that reports how much of it was sent, and raises once the launch is called off."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    return cast(BinaryIO, ProgressReader(cast(BinaryIO, stream), size, progress, SENDING))


def packed_rclone(architecture: str) -> Path:
    """Return this machine's rclone, compressed; that takes seconds, once for each version.

    Raises:
        LaunchRefused: this machine has none, or one for another architecture.
    """
    if (platform.system(), platform.machine()) != ("Linux", architecture):
        raise LaunchRefused(
            f"Data stores need rclone in the pod, and this machine's is for {platform.system()}"
            f" {platform.machine()}, not for Linux {architecture}.",
            hint="Take an image that has rclone 1.65 or newer.",
            code="C104",
        )
    source, sha256 = local_rclone()
    with translated():
        packed = Home(default_home()).agents / f"rclone-{sha256}.gz"
        if not packed.exists():
            packed.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(prefix=".rclone.", dir=packed.parent)
            with (
                os.fdopen(descriptor, "wb") as file,
                gzip.GzipFile("", "wb", PACKING, file, 0) as target,
                source.open("rb") as stream,
            ):
                shutil.copyfileobj(stream, target, 1 << 20)
            Path(temporary).rename(packed)
    return packed
