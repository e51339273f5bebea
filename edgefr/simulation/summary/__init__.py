"""What a finished run came to, as the values of its summary.json and its page.

Owns: turning a run's measurements into the summary. Does not own: how it is shown (`edgefr.report`).
"""
