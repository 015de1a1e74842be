use std::io::Read;

// EVOLVE-BLOCK-START
/// The bin of each item: the next bin as soon as one does not fit.
fn pack(capacity: u64, sizes: &[u64]) -> Vec<usize> {
    let mut bins = Vec::new();
    let (mut bin, mut filled) = (0, 0);
    for &size in sizes {
        if filled + size > capacity {
            bin += 1;
            filled = 0;
        }
        filled += size;
        bins.push(bin);
    }
    bins
}
// EVOLVE-BLOCK-END

fn main() {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).unwrap();
    let numbers: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    for bin in pack(numbers[0], &numbers[2..]) {
        println!("{bin}");
    }
}
