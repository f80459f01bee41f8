"""The Python API, behind ``import fabric_workbench``: jobs as objects, and their progress in notebooks.

Only ``fabric_workbench`` imports it. May import: ``services``, and what lies below them.
"""
