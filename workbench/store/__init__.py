"""The store: one SQLite file and one folder a job; the only bus between all parts of fabric."""
