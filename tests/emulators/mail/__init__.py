"""A mail host for tests: mailboxes and an IMAP server."""
