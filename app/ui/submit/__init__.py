"""The Submit page: the form, the values chosen in it, the jobs made of them."""
