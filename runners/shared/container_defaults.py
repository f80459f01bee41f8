"""What containers and pods have in common: the image of a job and the defaults of its container."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Final

from runners.interface import LaunchRequest
from workbench.spec import Framework


def image_of(request: LaunchRequest) -> str:
    """Return the whole reference of a job's image, its registry included; one that is built is named by its content."""
    if request.spec.build:
        content_key = [request.code_hash, asdict(request.spec.build)]
        content = hashlib.sha256(json.dumps(content_key, sort_keys=True).encode()).hexdigest()
        return f"{BUILT}:{content[:32] if request.code_hash else 'of-the-code'}"
    return reference_of(request.spec.framework)


def reference_of(framework: Framework) -> str:
    """Return the whole reference of an image that is not built."""
    registry = str(framework.image_location.get("registry") or "").strip("/")
    if not registry or framework.image.startswith(f"{registry}/"):
        return framework.image
    namespace = str(framework.image_location.get("namespace") or "").strip("/")
    return "/".join(part for part in (registry, namespace, framework.image) if part)


SHM_BYTES: Final = 4 << 30
"""PyTorch's data loaders die on Docker's own 64 MB."""

DROPPED: Final = (
    *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETPCAP", "NET_RAW", "MKNOD", "SETFCAP"),
)
"""The capabilities that FfDL dropped."""

BUILT: Final = "fabric-build"
"""Images that were built of code, one tag a content."""
