"""What the house is made of: plain data and the errors we raise on purpose."""
