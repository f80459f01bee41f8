"""Image and defaults of a job's container, for the runners ``container`` and ``pod``."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Final

from runners.interface import LaunchRequest
from workbench.spec import Framework


def image_of(request: LaunchRequest) -> str:
    """Return the full reference of a job's image; an image that is built has a tag by code and build settings."""
    if request.spec.build:
        content_key = [request.code_hash, asdict(request.spec.build)]
        content = hashlib.sha256(json.dumps(content_key, sort_keys=True).encode()).hexdigest()
        return f"{BUILT}:{content[:32] if request.code_hash else 'of-the-code'}"
    return reference_of(request.spec.framework)


def reference_of(framework: Framework) -> str:
    """Return the full reference of an image that is not built, with its registry."""
    registry = str(framework.image_location.get("registry") or "").strip("/")
    if not registry or framework.image.startswith(f"{registry}/"):
        return framework.image
    namespace = str(framework.image_location.get("namespace") or "").strip("/")
    return "/".join(part for part in (registry, namespace, framework.image) if part)


SHM_BYTES: Final = 4 << 30
"""The size of /dev/shm: Docker's default of 64 MB crashes PyTorch's data loaders."""

DROPPED: Final = (
    *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETPCAP", "NET_RAW", "MKNOD", "SETFCAP"),
)
"""The capabilities that are dropped, as in FfDL."""

BUILT: Final = "fabric-build"
"""The repository of images that are built from code."""
