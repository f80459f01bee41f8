"""Commands on backends: configure and probe them, list their GPUs, bring images there, adopt jobs."""
