"""Readers of dumps of TI's TIDL."""
