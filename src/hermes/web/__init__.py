"""The web page: pages rendered on the server, a live event stream, and their static files."""
