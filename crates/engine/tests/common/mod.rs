//! What several tests draw from.

/// Numbers that look drawn, the same ones each time.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// The next one, below `below`.
    pub(crate) fn below(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % below
    }
}
