"""Tests of what the controller decides, without a controller."""
