"""The command line in a fresh home."""

from __future__ import annotations

from tests.cli.conftest import fabric

__all__ = ["fabric"]
