"""Reading untrusted files in bounded memory, writing whole or not at all: standard library, numpy for mapped bytes."""
