//! [`Input`] reads the bytes of a fuzzer as numbers.

/// The remaining bytes. When they are used up, zeros follow.
pub struct Input<'d>(pub &'d [u8]);

impl Input<'_> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// Returns a number below `count`, which is at most 256.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    /// First reads how many bits the number has, and then the number. Small numbers are therefore
    /// as likely as large ones.
    pub fn number(&mut self) -> u64 {
        let bits = u32::from(self.byte()) % 65;
        let bytes: [u8; 8] =
            std::array::from_fn(|index| if 8 * index < bits as usize { self.byte() } else { 0 });
        let number = u64::from_le_bytes(bytes);
        if bits == 64 { number } else { number & ((1 << bits) - 1) }
    }

    /// Returns between zero and nearly four times `of`, in steps of 1/64 of `of`.
    pub fn share(&mut self, of: u64) -> u64 {
        let share = u128::from(of) * u128::from(self.byte()) / 64;
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}
