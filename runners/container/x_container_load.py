"""Brings images into an engine from files that ``docker save`` or ``podman save`` has written: no registry needed."""

from __future__ import annotations

from pathlib import Path

from runners.container.engine import Engine
from runners.container.pull import client_of, docker_library
from workbench.errors import InputMissing, RunnerError

_SAYS = "Loaded image"


def load(engine: Engine, file: Path) -> list[str]:
    """Load a file's images; return their names, or their ids where they have none.

    Raises:
        InputMissing: it cannot be read, or holds no images.
        RunnerError: the engine does not take it.
    """
    docker_library()
    from docker.errors import APIError, DockerException

    engine.ask("GET", "_ping")  # said better by us than by the library
    found = []
    try:
        with file.open("rb") as stream:
            for line in client_of(engine).load_image(stream):
                said = str(line.get("stream") or "").strip()
                if "error" in line:
                    raise InputMissing(f"{file} holds no images: {str(line['error']).strip()}.")
                if said.startswith(_SAYS):
                    found.append(said.partition(": ")[2])
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
