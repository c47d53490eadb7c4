"""Tables that are published: a summary per run that can be committed, and what is made of them."""
