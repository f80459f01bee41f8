"""Tests of the services that look after a home."""
