"""Every method gets the same search budget: what is searched, by which rules, on validation items alone."""
