"""Copies an image from one engine to another without a registry; only missing layers are sent."""

from __future__ import annotations

import json
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final

from runners.container.engine import Engine
from runners.container.image import ARCHITECTURES
from runners.container.pull import client_of, docker_library, streamed_from
from workbench import formats
from workbench.errors import CannotWrite, InputMissing, LaunchRefused, RunnerError
from workbench.learner.platform.engine_client import EngineRefused
from workbench.values import dataclass

Report = Callable[[str], None]

_CHUNK_BYTES: Final = 1 << 18
_BLOCK_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class TransferResult:
    """The result of a copy."""

    layers: int
    """The number of layers of the image."""
    missing: int
    """The number of layers that were sent."""
    size_bytes: int
    """The number of bytes that were sent."""


def send(source: Engine, target: Engine, name: str, report: Report) -> TransferResult:
    """Copy an image to another engine.

    Raises:
        InputMissing: the source has no such image.
        LaunchRefused: the image is for another architecture.
        CannotWrite: the temporary file cannot be written.
        RunnerError: an engine refuses.
    """
    found = source.image(name)
    if found is None:
        raise InputMissing(
            f"There is no image {name} here.", hint=f"docker pull {name}, or docker build -t {name} ."
        )
    _check_architecture(target, name, found)
    layers = [str(layer) for layer in found["RootFS"]["Layers"]]
    same = target.image(name)
    if same is not None and same["Id"] == found["Id"]:
        return TransferResult(len(layers), 0, 0)
    had = _layers_there(target, layers)
    try:
        with tempfile.TemporaryFile() as spool:
            _save(source, name, spool, report)
            try:
                size = _load(target, spool, had, report)
            except RunnerError:
                if not had:
                    raise
                had = 0  # this engine needs all layers, even those that it has
                size = _load(target, spool, had, report)
    except OSError as error:
        raise CannotWrite(
            f"The image could not be kept on its way: {error.strerror}.",
            hint="make room, or name a larger folder in TMPDIR",
        ) from error
    return TransferResult(len(layers), len(layers) - had, size)


def _check_architecture(target: Engine, name: str, image: dict[str, Any]) -> None:
    machine = str(target.info.get("Architecture") or "")
    image_architecture, machine_architecture = (
        str(image.get("Architecture") or ""),
        ARCHITECTURES.get(machine, machine),
    )
    if image_architecture and machine_architecture and image_architecture != machine_architecture:
        raise LaunchRefused(
            f"The image {name} is for {image_architecture}, and that machine is {machine_architecture}.",
            hint=f"docker pull --platform linux/{machine_architecture} {name}",
            code="C104",
        )


def _layers_there(engine: Engine, layers: Sequence[str]) -> int:
    """Return how many of the lowest layers an image of the engine has, too: layers are identified with those below."""
    most = 0
    for one in engine.ask("GET", "images/json") or ():
        image = engine.image(str(one["Id"]))
        known_layers = (image or {}).get("RootFS", {}).get("Layers") or ()
        same = 0
        while same < min(len(layers), len(known_layers)) and layers[same] == known_layers[same]:
            same += 1
        most = max(most, same)
    return most


def _save(engine: Engine, name: str, spool: IO[bytes], report: Report) -> None:
    docker_library()
    from docker.errors import DockerException

    report(f"takes {name} out of the engine here")
    try:
        with streamed_from(engine):
            for chunk in client_of(engine).get_image(name):
                spool.write(chunk)
    except DockerException as error:
        raise RunnerError(f"The engine here does not give {name}: {error}.") from error


def _load(engine: Engine, spool: IO[bytes], had: int, report: Report) -> int:
    """Send an image without its ``had`` lowest layers; return the number of bytes."""
    from docker.errors import DockerException

    spool.seek(0)
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        reported = 0
        for chunk in _without(spool, had):
            sent += len(chunk)
            if sent - reported >= 10_000_000:
                reported = sent
                report(f"sent {formats.size(sent)}")
            yield chunk

    try:
        with streamed_from(engine):
            for line in client_of(engine).load_image(chunks()):
                if "error" in line:
                    text = str(line["error"]).strip()
                    raise RunnerError(f"The engine there does not take the image: {text}.")
    except (DockerException, EngineRefused) as error:
        raise RunnerError(f"The engine there does not take the image: {error}.") from error
    return sent


def _without(spool: IO[bytes], had: int) -> Iterator[bytes]:
    """Yield an image's archive without the contents of its ``had`` lowest layers."""
    with tarfile.open(fileobj=spool, mode="r:") as archive:
        members = archive.getmembers()
        manifest = archive.extractfile("manifest.json")
        assert manifest is not None
        left_out = set(json.loads(manifest.read())[0]["Layers"][:had])
        for member in members:
            if member.name in left_out and member.isreg():
                continue
            yield member.tobuf(tarfile.GNU_FORMAT)
            if member.isreg():
                yield from _content(spool, member.offset_data, member.size)
    yield b"\0" * (2 * _BLOCK_BYTES)


def _content(spool: IO[bytes], offset: int, size: int) -> Iterator[bytes]:
    spool.seek(offset)
    left = size
    while left:
        data = spool.read(min(left, _CHUNK_BYTES))
        left -= len(data)
        yield data
    yield b"\0" * (-size % _BLOCK_BYTES)


_SAYS = "Loaded image"


def load(engine: Engine, file: Path) -> list[str]:
    """Load the images of a file; return their names, or ids for images without a name.

    Raises:
        InputMissing: the file cannot be read, or contains no images.
        RunnerError: the engine refuses it.
    """
    docker_library()
    from docker.errors import APIError, DockerException

    engine.ask("GET", "_ping")  # so that a missing engine is reported by our error, not the library's
    found = []
    try:
        with file.open("rb") as stream, streamed_from(engine):
            for line in client_of(engine).load_image(stream):
                text = str(line.get("stream") or "").strip()
                if "error" in line:
                    raise InputMissing(f"{file} holds no images: {str(line['error']).strip()}.")
                if text.startswith(_SAYS):
                    found.append(text.partition(": ")[2])
    except APIError as error:
        raise InputMissing(
            f"{file} holds no images: {error.explanation}.", hint="docker save IMAGE -o FILE writes one."
        ) from error
    except DockerException as error:
        raise RunnerError(f"The engine did not take {file}: {error}.") from error
    except OSError as error:
        raise InputMissing(f"{file} cannot be read: {error.strerror or error}.") from error
    if not found:
        raise InputMissing(f"{file} holds no images.", hint="docker save IMAGE -o FILE writes one.")
    return found
