"""Diagnosis of a float model and its fixed model on several images: subject, comparison and share of integers."""
