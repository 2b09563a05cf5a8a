"""The tools of the first hour: a shell, files, search in files, and a plan of what is to do."""
