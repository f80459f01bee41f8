"""Tests that need no process of fabric, no engine, no host and no screen: ``pytest -m quick``."""
