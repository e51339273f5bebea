"""A report is one web page of a run, of several runs or of a sweep: one HTML file that needs nothing beside it.

A section is a function that reads `Facts` and returns its parts, or None where it does not apply. Figures are SVG whose
places are percentages, so they fit any width and print sharply, and colours follow the reader's scheme; every mark says
its values when it is pointed at or reached by keys, and the same numbers stand in a table.

Owns: what the page shows, and how. Does not own: results; it computes none that `summary.json` does not hold, and reads
nothing of a run's private part.
"""
