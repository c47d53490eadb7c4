"""One module per command of `redline`."""
