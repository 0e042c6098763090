//! Everything random in a simulation, drawn from one seed.
//!
//! A history is drawn by [`Dice`], one number after the other. The fate of a single request is drawn by [`hash`] from the request
//! itself, so that leaving out a part of a history changes no other part.

use rand::{RngExt, SeedableRng, rngs::StdRng};

/// A sequence of numbers that follows from its seed.
#[derive(Debug)]
pub struct Dice(StdRng);

impl Dice {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { self.0.random_range(0..bound) }
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0.random_range(low..=high.max(low))
    }

    /// True in `percent` of all cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of the items, each equally likely. The list must not be empty.
    pub fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    /// An index, each as likely as its weight.
    pub fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        0
    }
}

/// A number that follows from the seed, a text and a count, and from nothing else.
pub fn hash(seed: u64, text: &str, count: u64) -> u64 {
    let mut state = seed ^ count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in text.bytes() {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    // The end of SplitMix64: neighbouring inputs get unrelated outputs.
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let draw = |seed| {
            let mut dice = Dice::new(seed);
            (0..20).map(|_| dice.between(0, 1_000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
    }

    #[test]
    fn a_hash_depends_on_each_of_its_inputs() {
        assert_eq!(hash(1, "get", 0), hash(1, "get", 0));
        assert_ne!(hash(1, "get", 0), hash(2, "get", 0));
        assert_ne!(hash(1, "get", 0), hash(1, "put", 0));
        assert_ne!(hash(1, "get", 0), hash(1, "get", 1));
    }

    #[test]
    fn weights_decide_how_often_an_index_is_drawn() {
        let mut dice = Dice::new(1);
        let drawn: Vec<usize> = (0..200).map(|_| dice.weighted(&[0, 3, 1])).collect();
        assert!(!drawn.contains(&0));
        assert!(drawn.iter().filter(|index| **index == 1).count() > 100);
    }
}
