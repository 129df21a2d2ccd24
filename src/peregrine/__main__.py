"""`python -m peregrine` is the command `peregrine`."""

from peregrine.cli import main

if __name__ == "__main__":
    main()
