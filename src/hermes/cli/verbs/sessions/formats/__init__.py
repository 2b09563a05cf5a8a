"""How a session leaves the house: as lossless JSON lines, as Markdown, as a page to look at."""
