"""``python -m sgsdump``."""

from sgsdump.cli import main

raise SystemExit(main())
