"""Models quantised with other tools, compared with the float model that they were made from."""
