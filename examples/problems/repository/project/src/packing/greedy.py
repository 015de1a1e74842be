from packing.bins import Bin


def pack(sizes):
    """Put each item into the last bin, or into a new one if it does not fit."""
    bins = [Bin()]
    for index, size in enumerate(sizes):
        if not bins[-1].fits(size):
            bins.append(Bin())
        bins[-1].add(index, size)
    return [each.items for each in bins]
