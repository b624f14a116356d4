"""Models that several workloads share. Imported inside `build` only: they need torch."""
