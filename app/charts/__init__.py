"""Tidy frame in, `Chart` out. A chart computes nothing but layout."""
