"""Code and data of jobs, on this machine: ``code`` takes snapshots, ``stores`` copies from and to data stores.

The two do not import each other.
"""
