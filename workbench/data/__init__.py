"""Code and data of jobs: snapshots of code, what git knows of it, archives."""
