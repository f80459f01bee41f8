"""Programs that Determined's launchers start."""
