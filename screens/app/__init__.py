"""The app that the screens live in, its palette and commands, the page of keys, and the server for browsers.

Only the command `fabric tui` imports from here. It may import every other package of the screens.
"""
