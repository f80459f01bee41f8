"""The real command for the rounds of harm: the same fixture as the command line's own tests."""

from tests.cli.conftest import fabric

__all__ = ["fabric"]
