class Bin:
    def __init__(self):
        self.items = []
        self.room = 1.0

    def fits(self, size):
        return size <= self.room

    def add(self, index, size):
        self.items.append(index)
        self.room -= size
