"""The rules of the SDK's converter: which operators it changes, and into what."""
