"""report.html: one page that needs no other file, made from the runs of a folder."""
