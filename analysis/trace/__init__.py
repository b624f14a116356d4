"""The meaning of a timeline, whatever tool recorded it: one model, each rule written once."""
