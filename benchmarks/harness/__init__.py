"""What all workloads stand on: servers, environments and processes of the peers, turns, checks, results."""
