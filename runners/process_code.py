"""Brings a job's code to a place: the snapshot, by the name of its content."""

from __future__ import annotations

import hashlib
from pathlib import Path

from backends.failures import translated
from backends.interface import Host
from runners.interface import LaunchRequest
from runners.process_site import Site


def bring_code(host: Host, site: Site, request: LaunchRequest) -> str:
    """Return where a job's snapshot lies at the place, put there if need be; empty for a job without code."""
    if not request.code_file:
        return ""
    path = site.home.snapshot(request.code_hash)
    source = Path(request.code_file)
    if site.here and path == source:
        return str(path)
    if not source.exists() and host.call("existing", paths=[str(path)]):
        return str(path)  # brought by another laptop
    with translated(), source.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        stream.seek(0)
        host.put(stream, str(path), sha256=sha256)
    return str(path)
