"""Rules of the SDK's converter: operators that it refuses or changes, and the results."""
