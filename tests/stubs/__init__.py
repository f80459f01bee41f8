"""Stand-ins for what a test machine does not have."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from tests.support.waiting import patience

GIB = 1 << 30


@cache
def nvml_library() -> Path:
    """Return a folder with the stub ``libnvidia-ml.so.1``, compiled once a machine; skips aloud without cc."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("the stub of NVIDIA's library needs a C compiler (cc)")
    source = Path(__file__).with_name("nvml.c")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    folder = Path("/var/tmp") / f"fabric-test-nvml-{os.getuid()}-{digest}"
    folder.mkdir(mode=0o755, exist_ok=True)
    library = folder / "libnvidia-ml.so.1"
    if not library.exists():
        made = library.with_suffix(f".{os.getpid()}")
        argv = [compiler, "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", str(made), str(source)]
        subprocess.run(argv, check=True, capture_output=True, timeout=patience(60))
        made.rename(library)  # other workers compile it at the same time
    return folder


@dataclass
class Gpus:
    """Pretended GPUs: change them and :meth:`write`; what has the variables of :meth:`env` sees them."""

    path: Path
    lines: list[str] = field(default_factory=list)

    def add(
        self, uuid: str, *, used: int = 0, model: str = "NVIDIA Pretended 24GB", total: int = 24 * GIB
    ) -> Gpus:
        """Put one more GPU into the machine."""
        self.lines.append(f"gpu {uuid} {total} {used} 7 41 95000 300000 {model}")
        return self.write()

    def say(self, line: str) -> Gpus:
        """Add a line as ``nvml.c`` reads it: a process, a slice, a failure."""
        self.lines.append(line)
        return self.write()

    def only(self, lines: Sequence[str]) -> Gpus:
        """Forget all and say these lines."""
        self.lines = list(lines)
        return self.write()

    def write(self) -> Gpus:
        """Write the lines into the file, whole."""
        beside = self.path.with_suffix(".new")
        beside.write_text("".join(line + "\n" for line in self.lines))
        beside.rename(self.path)
        return self

    def env(self) -> dict[str, str]:
        """Return what a process needs to see these GPUs."""
        return {"FABRIC_STUB_NVML": str(self.path), "LD_LIBRARY_PATH": str(nvml_library())}

    def session_variables(self) -> list[str]:
        """Return the same as ``NAME=VALUE``, for sessions of other users of this machine."""
        nvml_library().chmod(0o755)
        self.path.chmod(0o644)
        return [f"{name}={value}" for name, value in self.env().items()]


def pretend(path: Path, monkeypatch: pytest.MonkeyPatch, uuids: Sequence[str] = ()) -> Gpus:
    """Make this process and those that it starts see pretended GPUs, these at first.

    A library is loaded by its name only once: the stub stays loaded in this process, and answers as where there is
    no library when no file is named.
    """
    ctypes.CDLL(str(nvml_library() / "libnvidia-ml.so.1"))
    gpus = Gpus(path).write()
    for name, value in gpus.env().items():
        monkeypatch.setenv(name, value)
    for uuid in uuids:
        gpus.add(uuid)
    return gpus
