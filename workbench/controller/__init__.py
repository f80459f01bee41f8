"""The controller: the one process that moves jobs on, and what clients use to ask it."""
