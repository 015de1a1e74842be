"""Engines that execute evaluations and runs elsewhere: local, Slurm, Dask and Ray."""
