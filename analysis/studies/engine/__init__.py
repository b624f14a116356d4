"""What the declarative study files share: records, fields, measures, cells, pivots, fits."""
