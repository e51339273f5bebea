"""This says what utility can be expected under a guarantee, from curves that were measured; nothing is run."""
