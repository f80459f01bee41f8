"""The log viewer: learners merged, filtered and searched in the background, and drawn row by row.

The screen of a job imports the view. It imports base and what lies below, and no other kind of screen.
"""
