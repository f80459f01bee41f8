"""Tests that build the packages which a user installs."""
