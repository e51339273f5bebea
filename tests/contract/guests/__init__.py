"""Small programs of methods that are still to come: they show that the contract of local programs holds them."""
