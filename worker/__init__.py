"""Runs jobs on a host: executes workloads under the profilers and delivers what they leave."""
