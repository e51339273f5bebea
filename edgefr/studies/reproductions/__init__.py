"""Tables and figures of the papers are run again, one folder per paper, and printed beside the published numbers."""
