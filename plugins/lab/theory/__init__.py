"""The proposition about cost-blind allocation, computed."""
