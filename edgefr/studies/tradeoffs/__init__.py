"""A trade-off says what privacy costs where every epsilon is tuned with one budget, run, attacked and shown.

Owns: which epsilons, and the page that a privacy officer reads. Does not own: searches (`tuning`), runs (`sweeps`), or
attacks (`audits`), which it has made.
"""
