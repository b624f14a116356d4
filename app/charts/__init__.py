"""Tidy frame in, `Chart` out. A chart module computes only the layout."""
