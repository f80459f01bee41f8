"""Tests of the texts that commands print, without a command."""
