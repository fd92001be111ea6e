"""Where work runs: threads, processes, an existing Dask cluster."""
