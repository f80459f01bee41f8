"""Metrics: from the records that learners leave to rows and roll-ups in the store, and from there to charts and tables."""
