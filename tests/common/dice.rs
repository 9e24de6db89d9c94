//! Random choices for tests: the same for the same seed on every machine, and different for every place they are made at.

// Not every test uses all of it.
#![allow(dead_code)]

/// SplitMix64, a hashed counter.
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64, round: u64, place: u64) -> Dice {
        let mut dice = Dice(seed);
        for number in [round, place] {
            dice = Dice(dice.next() ^ number);
        }
        dice
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`, or 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n.max(1)
    }

    /// True with a probability in percent.
    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    pub fn choose<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// From -1 to 1.
    pub fn signed(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

/// A number from the environment, to run longer or to repeat a run.
pub fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
