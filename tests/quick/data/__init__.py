"""Tests of code snapshots, archives and what git knows."""
