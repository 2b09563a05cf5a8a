"""Wire formats of the providers: encode requests, decode streams. No network access here."""
