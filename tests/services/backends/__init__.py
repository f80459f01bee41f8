"""Tests of the services about backends."""
