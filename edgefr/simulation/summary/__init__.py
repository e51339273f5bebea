"""A finished run is summed up here, as the values of its summary.json and its page.

Owns: turning a run's measurements into the summary. Does not own: how it is shown (`edgefr.report`).
"""
