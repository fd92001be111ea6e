"""Trees of replayed runs: sgsdump recomputed a program's runs from its models and inputs."""
