"""What Redline costs: CPU time against another library, time and memory of single updates."""
