"""Our own kernels on the CPU: blocks, the experts in RAM, and the executor that needs nothing else."""
