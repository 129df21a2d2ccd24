"""What applications cost on the host: its one function, as a Python process of Spark calls it, nothing else."""
