"""Reports of results: text, CSV, JSON, HTML and images, a folder for each kind of result. Nothing here prints."""
