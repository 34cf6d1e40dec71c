"""The graph: a value made from statements, its tables, its checks and its proofs."""
