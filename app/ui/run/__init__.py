"""The Run page: its head and one module per tab."""
