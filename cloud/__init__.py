"""This is the server's side: the teacher, the distilled student, item vectors, pre-training, aggregation.

Owns: what runs on the server. Does not own: clients' private state, simulated time. Import the module you
need (`from cloud.distill import distill`); importing `cloud` alone loads neither torch nor transformers.
"""
