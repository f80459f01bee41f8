"""Tests of the services that read jobs."""
