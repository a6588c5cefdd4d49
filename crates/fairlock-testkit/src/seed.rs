//! Random tests that can be replayed from one number.

use std::env;
use std::hash::{BuildHasher, RandomState};
use std::thread;

/// The number a random test grows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed {
    variable: &'static str,
    value: u64,
}

impl Seed {
    /// The seed in the environment variable `variable`, or a random one when it is not set.
    ///
    /// # Panics
    ///
    /// When the variable holds something other than a number.
    pub fn from_env_or_random(variable: &'static str) -> Seed {
        let value = match env::var(variable) {
            Ok(text) => text
                .trim()
                .parse()
                .unwrap_or_else(|_| panic!("{variable} must be a number, not {text:?}")),
            Err(_) => RandomState::new().hash_one(0_u8),
        };
        Seed { variable, value }
    }

    /// The number itself.
    pub fn value(self) -> u64 {
        self.value
    }

    /// A generator that gives the same numbers for the same seed.
    pub fn rng(self) -> Rng {
        Rng::new(self.value)
    }

    /// Keep the result alive for the length of the test: if the test panics, it prints the
    /// command that replays it.
    #[must_use = "the replay command is printed when this value is dropped in a panic"]
    pub fn announce(self, test_name: &str) -> Announcement {
        Announcement { command: self.replay_command(test_name) }
    }

    fn replay_command(self, test_name: &str) -> String {
        format!("{}={} cargo xtask test -- {test_name}", self.variable, self.value)
    }
}

/// Prints how to replay a random test when that test panics. Made by [`Seed::announce`].
#[derive(Debug)]
pub struct Announcement {
    command: String,
}

impl Drop for Announcement {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("replay with: {}", self.command);
        }
    }
}

/// A small deterministic generator (SplitMix64). Not for secrets.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator that gives the same numbers for the same `seed`.
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed }
    }

    /// Any number.
    pub fn u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below zero");
        // The high half of the product is spread evenly enough for any bound a test uses.
        ((u128::from(self.u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True in `numerator` of `denominator` cases.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// A generator of its own for another thread or task, so that the order in which they run
    /// does not change the numbers either of them gets.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_reference_generator() {
        let mut rng = Rng::new(0);
        assert_eq!(rng.u64(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(rng.u64(), 0x6E78_9E6A_A1B9_65F4);
    }

    #[test]
    fn below_stays_below_and_reaches_everything() {
        let mut rng = Rng::new(7);
        let mut seen = [false; 6];
        for _ in 0..200 {
            seen[rng.below(6) as usize] = true;
        }
        assert_eq!(seen, [true; 6]);
    }

    #[test]
    fn chance_follows_the_odds() {
        let mut rng = Rng::new(7);
        let hits = (0..10_000).filter(|_| rng.chance(1, 4)).count();
        assert!((2_300..2_700).contains(&hits), "{hits} of 10000 for one in four");
    }

    #[test]
    fn the_replay_command_names_seed_and_test() {
        let seed = Seed { variable: "FAIRLOCK_SEED", value: 42 };
        assert_eq!(
            seed.replay_command("storm::survives"),
            "FAIRLOCK_SEED=42 cargo xtask test -- storm::survives"
        );
    }

    #[test]
    fn an_unset_variable_gives_different_seeds() {
        let first = Seed::from_env_or_random("FAIRLOCK_SEED_THAT_NOBODY_SETS");
        let second = Seed::from_env_or_random("FAIRLOCK_SEED_THAT_NOBODY_SETS");
        assert_ne!(first.value(), second.value());
    }
}
