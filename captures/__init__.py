"""What worker and analysis share about files that others made: opening, scrubbing, manifests."""
