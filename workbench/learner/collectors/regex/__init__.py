"""regex."""
