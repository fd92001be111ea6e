"""The commands that dump a program, and that check its operators."""
