"""Logs: the bytes that learners printed, read by offset, line and time. They are files, never rows."""
