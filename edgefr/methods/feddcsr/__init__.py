"""FedDCSR separates what domains share of a sequence from what is one domain's own (central here).

Owns: what scores, and how its learner is made. Does not own: the learner (`cloud.references.feddcsr`).
"""
