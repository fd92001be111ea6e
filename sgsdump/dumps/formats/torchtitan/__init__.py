"""Activation logs of torchtitan."""
