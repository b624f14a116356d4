"""Read memory snapshots of PyTorch's caching allocator."""
