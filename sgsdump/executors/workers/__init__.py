"""Places where work runs: threads, processes, an existing Dask cluster."""
