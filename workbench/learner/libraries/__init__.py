"""Packages that stand for libraries of other systems; this folder is first on the path of jobs that want them."""
