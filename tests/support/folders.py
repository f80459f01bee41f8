"""Temporary folders of tests whose paths are short, and as long on every machine.

Sockets allow 100 characters, screens cut off and wrap what is longer, and files record the sizes of others.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import string
import tempfile
from pathlib import Path
from typing import Final

from tests.support.kept_agents import lend_agents
from workbench.paths import Home

PREFIX: Final = "fab-"
"""By this a run finds what another one that was killed has left: :mod:`tests.gate.leftovers`."""
LENGTH: Final = len("/tmp/fab-12345678")
LEAST_LETTERS: Final = 6
KEPT = ("PATH", "LANG", "LC_ALL", "TERM", "TMPDIR")
KEPT_PREFIXES = ("PYTEST", "FABRIC_TEST_", "UV", "PIP_", "SSL_CERT_", "REQUESTS_CA_", "CURL_CA_")
"""What a package client needs to reach its registry stays: some tests build environments."""
REAL_HOME: Final = Path.home()


def is_kept(name: str) -> bool:
    """Say whether tests have this variable of whoever runs them."""
    return name in KEPT or name.startswith(KEPT_PREFIXES)


def is_short(base: str) -> bool:
    """Say whether folders of tests may lie in this one."""
    return _letters(base) >= LEAST_LETTERS


def make_folder() -> Path:
    """Make a folder for one test, which removes it; it lies in ``/tmp`` where the path of TMPDIR is too long."""
    base = tempfile.gettempdir()
    if not is_short(base):
        base = "/tmp"
    while True:
        name = "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(_letters(base)))
        folder = Path(base, PREFIX + name)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            return folder


def environment_of(root: Path) -> dict[str, str]:
    """Make a folder what ``clean_environment`` gives one test, for jobs of several tests; return its variables."""
    kept = {name: value for name, value in os.environ.items() if is_kept(name)}
    (root / "run").mkdir(mode=0o700)
    (root / "leases").mkdir(mode=0o1777)
    (root / "work").mkdir()
    lend_agents(Home(root / "fabric"))
    return {
        **kept,
        "HOME": str(root),
        "FABRIC_HOME": str(root / "fabric"),
        "FABRIC_CONFIG": str(root / "config.toml"),
        "FABRIC_LEASES": str(root / "leases"),
        "XDG_RUNTIME_DIR": str(root / "run"),
        "FABRIC_NO_CONTROLLER": "1",
        "DOCKER_HOST": f"unix://{root}/no-engine.sock",
    }


def _letters(base: str) -> int:
    return LENGTH - len(f"{base}/{PREFIX}")
