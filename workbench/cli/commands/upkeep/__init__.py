"""Commands that keep a home in order: config, controller, doctor, du, gc, prune, tui, version. One module each."""
