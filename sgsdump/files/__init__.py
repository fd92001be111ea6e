"""Reading untrusted files in bounded memory, writing whole or not at all: standard library only."""
