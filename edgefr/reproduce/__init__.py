"""Tables and figures of the papers, run again: one folder per experiment, printed beside the published numbers."""
