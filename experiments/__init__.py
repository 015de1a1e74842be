"""Many runs or simulations, and their comparison."""
