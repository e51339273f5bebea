"""A report is one web page of a run, of several runs or of a sweep: one HTML file that needs nothing beside it.

A section of the page is one file here and one template of the same name: a function that reads `Facts` and returns what
the template shows, or None where the section does not apply, which is then absent. Figures are SVG whose places are
percentages, so they fit any width and print sharply, and colours follow the reader's scheme; every mark says its
values when it is pointed at or reached by keys, and the same numbers stand in a table.

Owns: what the page shows, and how. Does not own: results; it computes none that `summary.json` does not hold, and reads
nothing of a run's private part.
"""
