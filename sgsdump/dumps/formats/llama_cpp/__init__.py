"""Readers of dumps of llama.cpp."""
