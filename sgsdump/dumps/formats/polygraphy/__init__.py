"""Result files of Polygraphy's command line."""
