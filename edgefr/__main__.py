"""`python -m edgefr` is the command line, where the command `edgefr` is not on the path."""

from edgefr.cli.app import main

if __name__ == "__main__":
    main()
