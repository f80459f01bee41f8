"""Tests of the services that every client uses."""
