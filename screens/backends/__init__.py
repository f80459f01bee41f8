"""The screen of backends: their health, machines and GPUs, asked again and again while one looks.

The app imports from here. It imports base and what lies below.
"""
