"""What the data plane costs on this machine, against its targets: `python -m peregrine.bench.spark`."""
