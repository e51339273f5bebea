"""These hot loops of the server are compiled to machine code at their first call."""
