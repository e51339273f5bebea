"""MiaSRec reads several intents of a session (SIGIR 2024).

Owns: its program and settings. Does not own: prefixes of windows (`edgefr.methods.prefixes`).
"""
