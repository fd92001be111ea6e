"""Readers of dumps of Apache TVM."""
