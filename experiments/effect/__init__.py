"""What a part of the method is worth, from the tosses of runs."""
