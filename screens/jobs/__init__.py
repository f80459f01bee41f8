"""The table of jobs, the screen of one job with its tabs, and the comparison of several.

Only the app imports from here. It imports launch, logs, charts, base and what lies below.
"""
