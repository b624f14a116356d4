"""Read a PyTorch profiler trace (Kineto's Chrome JSON, plain or gzip) of any size and year."""
