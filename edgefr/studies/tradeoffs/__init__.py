"""What privacy costs where it is tuned: every epsilon has a search of the same budget, is run, attacked and shown.

Owns: which epsilons, and the page that a privacy officer reads. Does not own: searches (`tuning`), runs (`sweeps`), or
attacks (`audits`), which it has made.
"""
