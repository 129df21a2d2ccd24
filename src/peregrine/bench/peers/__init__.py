"""Other systems on the same machine, with the same rows: what `peregrine bench run peers` compares Peregrine with."""
