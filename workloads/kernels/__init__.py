"""Triton kernels of our own. Each module needs torch and triton; import inside functions only."""
