"""Read Nsight Compute: CSV pages, reports and logs."""
