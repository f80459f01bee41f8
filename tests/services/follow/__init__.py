"""Tests of the services that follow jobs."""
