"""Other libraries that Redline is compared with; the only folder that imports them."""
