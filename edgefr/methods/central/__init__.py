"""Central references: models that learn from everybody's pooled data, beside which federated ones are read.

Owns: what scores, and how its learner is made. Does not own: the learners (`cloud.references`).
"""
