"""Programs that run alone: `python -m workloads NAME --spec JSON`.

One workload per file, on a shared harness. Importing this room never imports torch: the
dashboard lists the workloads and checks their parameters without it.
"""
