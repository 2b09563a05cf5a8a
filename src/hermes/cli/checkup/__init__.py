"""What `hermes doctor` looks at, one module for each part of the house."""
