"""Small tools with no opinion about agents: ids, time, files, text, delays, redaction."""
