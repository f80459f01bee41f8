"""Tests of services that read the store and reach nothing."""
