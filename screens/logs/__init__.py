"""A job's log as a viewer needs it: learners merged, filtered, searched in threads, and read by row."""
