"""What Determined calls experimental: ``core_v2``."""
