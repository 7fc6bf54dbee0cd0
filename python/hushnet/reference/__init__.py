"""Executors of a plan for proof and comparison: what the answer should be."""
