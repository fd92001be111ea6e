"""Results of Polygraphy, as its command line saves them."""
