"""Dump a program that runs: what is dumped (``control``), how a program is run and hooked, and the trees that result.

control.py   DumpControl: the one record of what is dumped, whichever front door it came through
hook/        what is put into the program's process; the standard library, torch and onnxruntime only
"""
