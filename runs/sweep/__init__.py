"""Many runs as processes of their own."""
