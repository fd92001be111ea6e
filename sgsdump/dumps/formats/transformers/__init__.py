"""Folders of the model debugger of Hugging Face transformers."""
