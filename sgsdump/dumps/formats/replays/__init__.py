"""Trees of a program's runs that were computed again from its models and feeds, a dump for each run."""
