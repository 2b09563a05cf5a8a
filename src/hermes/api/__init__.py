"""The API server: the door for programs, in the shape of the OpenAI API."""
