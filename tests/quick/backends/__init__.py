"""Tests of what backends read, without a host."""
