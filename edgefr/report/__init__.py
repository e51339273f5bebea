"""This room shows results: on a terminal, on a page, in Markdown, as figures.

Owns: how values are shown. Does not own: the values; it is handed dicts and tables and computes none.
"""
