"""What fabric says of itself now, for the frozen files to be compared with or written from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cli.conftest import Fabric
from tests.frozen import names


def public_names(fabric: Fabric) -> dict[str, Any]:
    """Return what can be imported; a job says where training code finds ``fabric_learner``."""
    archive = fabric("run", "-q", "--", 'echo "$PYTHONPATH"').stdout.strip().rpartition(":")[2]
    rest = [module for module in names.CALLED if module != "fabric_learner"]
    return {
        **_asked(["fabric_learner"], archive),
        **_asked([*rest, *names.EXTENDED, *names.GROUPS], ""),
    }


def _asked(words: list[str], path: str) -> Any:
    ran = subprocess.run(
        [sys.executable, str(Path(names.__file__)), *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
