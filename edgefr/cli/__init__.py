"""The command line has one file per command. Owns: arguments, progress, exit codes. Does not own: what commands do."""
