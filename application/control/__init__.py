"""The control plane: runs, partitions, workers and the operators' actions and queries."""
