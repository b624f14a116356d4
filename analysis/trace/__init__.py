"""What a capture with a timeline says, whoever recorded it: one model, each rule written once."""
