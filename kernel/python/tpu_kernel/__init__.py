"""PyTorch (TPU): a Jupyter kernel."""
