"""The store: one SQLite file and one folder a job, the only bus between the command line, the screens and the controller."""
