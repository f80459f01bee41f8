"""Tests of the user's configuration."""
