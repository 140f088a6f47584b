"""`python -m hanse` is the command `hanse`."""

from hanse.cli import main

if __name__ == "__main__":
    main()
