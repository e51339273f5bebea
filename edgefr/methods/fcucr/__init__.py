"""FCUCR distils a client's own past, and transfers prototypes of sessions between clients (WWW 2026).

Owns: sequence encoders, teachers, prototypes, the personal module. Does not own: the server's knowledge base
(`cloud.prototypes`).
"""
