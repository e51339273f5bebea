"""The command line: one file per command. Owns: arguments, progress, exit codes. Does not own: what commands do."""
