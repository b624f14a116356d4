"""A campaign of faults under running jobs: `python -m bench.faults`."""
