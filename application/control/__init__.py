"""The queue and the control plane: runs, partitions, workers, and what operators ask."""
