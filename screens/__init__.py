"""The screens of fabric in the terminal (fabric tui), made with Textual.

Arrows point one way: app > jobs > launch, backends, logs, charts > base > widgets > core > workers, style.
"""
