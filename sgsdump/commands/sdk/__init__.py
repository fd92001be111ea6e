"""Files and options of the SDK's own commands (``tools/``). Apart: no subcommand of sgsdump needs them."""
