"""Commands that start, follow and control jobs: options in, services called, text out."""
