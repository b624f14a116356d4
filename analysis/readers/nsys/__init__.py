"""Read Nsight Systems: SQLite exports (2021.3 to 2026.2) and reports."""
