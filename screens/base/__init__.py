"""What every screen is made from: its heading and keys, windows over it, logging in, lending the terminal.

Screens and the app import from here. It imports widgets, core, workers and style.
"""
