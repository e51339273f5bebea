"""A report is the summary of a run, its tables and its figures. Owns: how results are shown. Does not own: results."""
