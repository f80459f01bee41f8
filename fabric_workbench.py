"""The entry module of the command ``fabric``, and its small Python API."""
