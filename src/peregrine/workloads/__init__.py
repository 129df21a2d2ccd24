"""Applications, each in a small file: operators, keys and what their sources send."""
