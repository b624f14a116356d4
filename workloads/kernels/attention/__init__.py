"""Fused attention: the gradient function, and the Triton kernels it launches."""
