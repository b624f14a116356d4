"""The same job over time: its line, where the line moved, and what changed there."""
