"""The proposition about cost-blind allocation, played through."""
