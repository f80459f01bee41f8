"""The form for a new job: a draft, what drafts are made from, and the screen.

The app and the screens of jobs import from here. It imports base and what lies below.
"""
