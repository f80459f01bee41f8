"""scribe."""
