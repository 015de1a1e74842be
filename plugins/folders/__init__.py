"""Problem folders of OpenEvolve, SkyDiscover and ShinkaEvolve, and packages that are missing."""
