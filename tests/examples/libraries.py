"""Makes the environment of the examples of libraries, once: ``python3 -m tests.examples.libraries``.

It is some 1.3 GB, so it lies in the user's cache, by the hash of what it holds. Only the standard library is imported:
whatever Python is there makes it, before anything else is installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

REQUIREMENTS: Final = Path(__file__).with_name("libraries.txt")
_IMPORTS: Final = """\
import keras, lightgbm, lightning.pytorch, sklearn.neural_network, xgboost
from transformers import GPT2LMHeadModel, Trainer
"""


def environment_folder() -> Path:
    """Return where the environment is, or would be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    return cache / "fabric-tests" / f"libraries-{digest}"


def is_made(folder: Path) -> bool:
    """Say whether the environment is there and whole."""
    return (folder / "complete").exists()


def make_environment() -> Path:
    """Make what is missing of the environment, one process at a time, and return its folder.

    Raises:
        CalledProcessError: pip could not install a requirement, or one cannot be imported.
    """
    folder = environment_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_made(folder):
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, with_pip=True)
            python = str(folder / "bin" / "python")
            # Compiled is what gets imported, below: pip would compile all of it, which takes as long as the rest.
            install = ["-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check"]
            subprocess.run([python, *install, "-r", str(REQUIREMENTS)], check=True)
            subprocess.run([python, "-c", _IMPORTS], check=True, env={**os.environ, "KERAS_BACKEND": "torch"})
            (folder / "complete").touch()
    return folder


if __name__ == "__main__":
    try:
        print(make_environment())
    except subprocess.CalledProcessError as error:
        sys.exit(f"the environment of libraries could not be made: {error}")
