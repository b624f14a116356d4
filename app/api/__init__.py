"""The HTTP API under `/api/v1`: what workers speak, and runs as JSON. See docs/architecture.md."""
