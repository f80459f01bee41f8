"""Tests of the services that act on jobs."""
