"""What fills the terminal: the chat, the lists to choose from, the help."""
