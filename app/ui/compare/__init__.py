"""The Compare page, from its head to the curves of several runs."""
