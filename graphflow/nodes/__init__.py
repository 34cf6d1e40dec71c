"""What a graph is made of: nodes and the edges between them."""
