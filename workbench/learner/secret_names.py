"""Names that say that their value is a secret. Runs wherever training code does."""

SECRET_NAME = "(?i:password|passwd|secret|token|api_?key|access_?key|private_?key)"
"""A regular expression, which a part of such a name matches."""
