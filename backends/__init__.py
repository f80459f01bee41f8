"""Places: how this machine, an SSH host or a cluster is reached, and what is there."""
