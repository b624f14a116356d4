"""Many ranks: cost, check against another way of counting, import of large exports."""
