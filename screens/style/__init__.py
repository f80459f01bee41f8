"""style."""
