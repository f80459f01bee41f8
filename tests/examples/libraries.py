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
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    return cache / "fabric-tests" / f"libraries-{digest}"


def wheel_folder() -> Path:
    """Return where the environment with Determined's wheel is, or would be."""
    digest = hashlib.sha256(WHEEL_REQUIREMENTS.read_bytes() + REQUIREMENTS.read_bytes()).hexdigest()[:12]
    return environment_folder().with_name(f"determined-{digest}")


def is_made(folder: Path) -> bool:
    """Say whether the environment is there and whole."""
    return (folder / "complete").exists()


def make_environment() -> Path:
    """Make what is missing of the environment of libraries, one process at a time, and return its folder.

    Raises:
        CalledProcessError: pip could not install a requirement, or one cannot be imported.
    """

    def fill(folder: Path) -> None:
        python = str(folder / "bin" / "python")
        # Compiled is what gets imported, below: pip would compile all of it, which takes as long as the rest.
        install = ["-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check"]
        subprocess.run([python, *install, "-r", str(REQUIREMENTS)], check=True)
        subprocess.run([python, "-c", _IMPORTS], check=True, env={**os.environ, "KERAS_BACKEND": "torch"})

    return _made(environment_folder(), fill)


def make_wheel_environment() -> Path:
    """Make the environment with Determined's wheel, which sees all libraries of the other one, and return its folder.

    Raises:
        CalledProcessError: pip could not install a requirement, or one cannot be imported.
    """
    libraries = make_environment()

    def fill(folder: Path) -> None:
        python = str(folder / "bin" / "python")
        install = ["-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check"]
        subprocess.run([python, *install, "-r", str(WHEEL_REQUIREMENTS)], check=True)
        _link(libraries, folder)
        subprocess.run([python, "-c", "import requests, ruamel.yaml, torch"], check=True)

    return _made(wheel_folder(), fill)


def tensorflow_folder() -> Path:
    """Return where the environment with Determined's wheel and TensorFlow is, or would be."""
    texts = TENSORFLOW_REQUIREMENTS.read_bytes() + WHEEL_REQUIREMENTS.read_bytes()
    return environment_folder().with_name(f"tensorflow-{hashlib.sha256(texts).hexdigest()[:12]}")


def make_tensorflow_environment(folder: Path) -> Path:
    """Make the environment with Determined's wheel and TensorFlow, for the soak alone, and return its folder.

    Raises:
        CalledProcessError: pip could not install a requirement, or one cannot be imported.
    """

    def fill(folder: Path) -> None:
        python = str(folder / "bin" / "python")
        install = ["-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--disable-pip-version-check"]
        for file in (TENSORFLOW_REQUIREMENTS, WHEEL_REQUIREMENTS):
            subprocess.run([python, *install, "-r", str(file)], check=True)
        subprocess.run([python, "-c", "import psutil, requests, ruamel.yaml, tensorflow"], check=True)

    return _made(folder, fill)


def whole_wheel_folder() -> Path:
    """Return where the environment with Determined's wheel and all its requirements is, or would be."""
    digest = hashlib.sha256(WHOLE_WHEEL_REQUIREMENTS.read_bytes()).hexdigest()[:12]
    return environment_folder().with_name(f"whole-wheel-{digest}")


def make_whole_wheel_environment(folder: Path) -> Path:
    """Make the environment with Determined's wheel and all its requirements, for the soak alone, and return its folder.

    Raises:
        CalledProcessError: pip could not install a requirement, or one cannot be imported.
    """

    def fill(folder: Path) -> None:
        python = str(folder / "bin" / "python")
        install = ["-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check"]
        subprocess.run([python, *install, "-r", str(WHOLE_WHEEL_REQUIREMENTS)], check=True)
        subprocess.run([python, "-m", "pip", "-q", "--disable-pip-version-check", "check"], check=True)
        subprocess.run([python, "-c", "import google.cloud.storage, torch"], check=True)

    return _made(folder, fill)


def deepspeed_folder() -> Path:
    """Return where the environment with DeepSpeed beside that wheel is, or would be."""
    texts = DEEPSPEED_REQUIREMENTS.read_bytes() + WHOLE_WHEEL_REQUIREMENTS.read_bytes()
    return environment_folder().with_name(f"deepspeed-{hashlib.sha256(texts).hexdigest()[:12]}")


def make_deepspeed_environment(folder: Path, whole_wheel: Path) -> Path:
    """Make the environment with DeepSpeed, which sees all of that wheel's, for the soak alone, and return its folder.

    Raises:
        CalledProcessError: pip could not install a requirement, or one cannot be imported.
    """
    make_whole_wheel_environment(whole_wheel)

    def fill(folder: Path) -> None:
        python = str(folder / "bin" / "python")
        _link(whole_wheel, folder)
        install = ["-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check"]
        subprocess.run([python, *install, "setuptools", "wheel"], check=True)
        # Its build looks for torch, which is there; what it could compile then is compiled where it is needed.
        build = ["--no-build-isolation", "-r", str(DEEPSPEED_REQUIREMENTS)]
        subprocess.run([python, *install, *build], check=True, env={**os.environ, "DS_BUILD_OPS": "0"})
        subprocess.run([python, "-c", "import deepspeed"], check=True)

    return _made(folder, fill)


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
