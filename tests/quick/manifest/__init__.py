"""Tests of reading manifests."""
