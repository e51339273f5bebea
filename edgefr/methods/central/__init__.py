"""Central references learn from everybody's pooled data; federated models are read beside them.

Owns: what scores, and how its learner is made. Does not own: the learners (`cloud.references`).
"""
