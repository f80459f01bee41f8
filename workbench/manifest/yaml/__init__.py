"""yaml."""
