"""The languages of the providers: requests to bytes, streams to answers. No network here."""
