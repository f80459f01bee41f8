"""Tests of the services that move files."""
