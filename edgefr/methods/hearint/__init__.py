"""HearInt reads a session's intents at several levels.

Owns: its program and settings. Does not own: the session graph (`edgefr.methods.session_graph`).
"""
