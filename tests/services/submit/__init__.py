"""Tests of the services that start jobs."""
