"""Tidy frame in, plotly Figure out. A chart computes nothing but layout."""
