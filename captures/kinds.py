"""What a capture file can be."""

from enum import StrEnum


class CaptureKind(StrEnum):
    NSYS_SQLITE = "nsys_sqlite"
    NSYS_REP = "nsys_rep"
    NSYS_CSV = "nsys_csv"
    NCU_REP = "ncu_rep"
    NCU_CSV = "ncu_csv"
    NCU_LOG = "ncu_log"
    NCU_SOURCE = "ncu_source"
    TORCH_TRACE = "torch_trace"
    MEMORY_SNAPSHOT = "memory_snapshot"
    LATENCY_CSV = "latency_csv"
    BUNDLE = "bundle"
