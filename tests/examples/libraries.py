"""Makes the environment of the examples of libraries, and one with Determined's wheel beside them, once each.

``python3 -m tests.examples.libraries`` makes both. The first is some 1.3 GB, so they lie in the user's cache, by the
hash of what they hold. Only the standard library is imported: whatever Python is there makes them, before anything else
is installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Final

REQUIREMENTS: Final = Path(__file__).with_name("libraries.txt")
WHEEL_REQUIREMENTS: Final = Path(__file__).with_name("determined.txt")
TENSORFLOW_REQUIREMENTS: Final = Path(__file__).with_name("tensorflow.txt")
WHOLE_WHEEL_REQUIREMENTS: Final = Path(__file__).with_name("whole-wheel.txt")
DEEPSPEED_REQUIREMENTS: Final = Path(__file__).with_name("deepspeed.txt")
_IMPORTS: Final = """\
import keras, lightgbm, lightning.pytorch, sklearn.neural_network, xgboost
from transformers import GPT2LMHeadModel, Trainer
"""


def environment_folder() -> Path:
    """Return where the environment is, or would be."""
    return _folder_of("libraries", REQUIREMENTS)


def wheel_folder() -> Path:
    """Return where the environment with Determined's wheel is, or would be."""
    return _folder_of("determined", WHEEL_REQUIREMENTS, REQUIREMENTS)


def is_made(folder: Path) -> bool:
    """Say whether the environment is there and whole."""
    return (folder / "complete").exists()


def make_environment() -> Path:
    """Make what is missing of the environment of libraries, one process at a time, and return its folder.

    Raises:
        CalledProcessError: pip could not install a requirement, or one cannot be imported.
    """

    def fill(folder: Path) -> None:
        _install(folder, "-r", str(REQUIREMENTS))
        _run(folder, "-c", _IMPORTS, KERAS_BACKEND="torch")

    return _made(environment_folder(), fill)


def make_wheel_environment() -> Path:
    """Make the environment with Determined's wheel, which sees all libraries of the other one, and return its folder.

    Raises:
        CalledProcessError: pip could not install a requirement, or one cannot be imported.
    """
    libraries = make_environment()

    def fill(folder: Path) -> None:
        _install(folder, "--no-deps", "-r", str(WHEEL_REQUIREMENTS))
        _link(libraries, folder)
        _run(folder, "-c", "import requests, ruamel.yaml, torch")

    return _made(wheel_folder(), fill)


def tensorflow_folder() -> Path:
    """Return where the environment with Determined's wheel and TensorFlow is, or would be."""
    return _folder_of("tensorflow", TENSORFLOW_REQUIREMENTS, WHEEL_REQUIREMENTS)


def make_tensorflow_environment(folder: Path) -> Path:
    """Make the environment with Determined's wheel and TensorFlow, for the soak alone, and return its folder.

    Raises:
        CalledProcessError: pip could not install a requirement, or one cannot be imported.
    """

    def fill(folder: Path) -> None:
        for file in (TENSORFLOW_REQUIREMENTS, WHEEL_REQUIREMENTS):
            _install(folder, "--no-deps", "-r", str(file))
        _run(folder, "-c", "import psutil, requests, ruamel.yaml, tensorflow")

    return _made(folder, fill)


def whole_wheel_folder() -> Path:
    """Return where the environment with Determined's wheel and all its requirements is, or would be."""
    return _folder_of("whole-wheel", WHOLE_WHEEL_REQUIREMENTS)


def make_whole_wheel_environment(folder: Path) -> Path:
    """Make the environment with Determined's wheel and all its requirements, for the soak alone, and return its folder.

    Raises:
        CalledProcessError: pip could not install a requirement, or one cannot be imported.
    """

    def fill(folder: Path) -> None:
        _install(folder, "-r", str(WHOLE_WHEEL_REQUIREMENTS))
        _run(folder, "-m", "pip", "-q", "check")
        _run(folder, "-c", "import google.cloud.storage, torch")

    return _made(folder, fill)


def deepspeed_folder() -> Path:
    """Return where the environment with DeepSpeed beside that wheel is, or would be."""
    return _folder_of("deepspeed", DEEPSPEED_REQUIREMENTS, WHOLE_WHEEL_REQUIREMENTS)


def make_deepspeed_environment(folder: Path, whole_wheel: Path) -> Path:
    """Make the environment with DeepSpeed, which sees all of that wheel's, for the soak alone, and return its folder.

    Raises:
        CalledProcessError: pip could not install a requirement, or one cannot be imported.
    """
    make_whole_wheel_environment(whole_wheel)

    def fill(folder: Path) -> None:
        _link(whole_wheel, folder)
        _install(folder, "setuptools", "wheel")
        # Its build looks for torch, which is there; what it could compile then is compiled where it is needed.
        _install(folder, "--no-build-isolation", "-r", str(DEEPSPEED_REQUIREMENTS), DS_BUILD_OPS="0")
        _run(folder, "-c", "import deepspeed")

    return _made(folder, fill)


def _folder_of(name: str, *requirements: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in requirements)).hexdigest()[:12]
    return cache / "fabric-tests" / f"{name}-{digest}"


def _install(folder: Path, *arguments: str, **variables: str) -> None:
    # Compiled is what gets imported afterwards: pip would compile all of it, which takes as long as the rest.
    options = ("-q", "--no-compile", "--disable-pip-version-check")
    _run(folder, "-m", "pip", "install", *options, *arguments, **variables)


def _run(folder: Path, *arguments: str, **variables: str) -> None:
    """Run an environment's Python."""
    subprocess.run([str(folder / "bin" / "python"), *arguments], check=True, env={**os.environ, **variables})


def _link(libraries: Path, folder: Path) -> None:
    """Have Python find in one environment what another one has."""
    (packages,) = folder.glob("lib/python*/site-packages")
    (beside,) = libraries.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(f"{beside}\n")


def _made(folder: Path, fill: Callable[[Path], None]) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_made(folder):
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, with_pip=True)
            fill(folder)
            (folder / "complete").touch()
    return folder


if __name__ == "__main__":
    try:
        print(make_wheel_environment())
    except subprocess.CalledProcessError as error:
        sys.exit(f"the environment of libraries could not be made: {error}")
