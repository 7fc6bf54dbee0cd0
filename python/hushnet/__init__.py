"""Run a trained neural network on inputs that the server never sees."""
