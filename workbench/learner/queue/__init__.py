"""The queue of a host: who waits for its GPUs, in which order, shared by all homes and people that use it."""
