"""What pages share: cached reads, formatting, colours and small widgets."""
