"""Readers: one capture format a module, each path -> `CaptureTables`, found by content."""

from analysis.readers.detect import detect
from analysis.readers.dispatch import read

__all__ = ["detect", "read"]
