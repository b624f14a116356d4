"""`warpboard profile`: any program, unchanged, measured pass by pass and stored as one run."""
