//! The bytes of a file: blocks with a checksum, and the encoding of numbers, texts and quotas.
//!
//! ```text
//! file:    "tollgate", version (2 bytes), block*, end, checksum (8 bytes)
//! block:   length (4 bytes, 1 to 65,536), that many bytes
//! end:     length 0
//! ```
//!
//! Numbers are little-endian. The checksum is the SipHash-1-3 of all bytes in the blocks, with a
//! key of zeros. It detects damage, but does not authenticate the file: anyone who can write the
//! file can also write a valid checksum.
//!
//! A reader takes exactly the bytes of one file from its source, so one file may follow another. It
//! allocates a block only after it has read the block's length, and stores values only as it reads
//! them. A wrong length or count therefore costs the memory of one block at most.

use crate::error::LoadError;
use crate::quota::Quota;
use crate::time::Tick;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::io::{self, Read, Write};
use std::time::Duration;

const MAGIC: [u8; 8] = *b"tollgate";
const VERSION: u16 = 1;
const MAX_BLOCK: usize = 1 << 16;

/// Writes one file.
pub struct FileWriter<'w> {
    to: &'w mut dyn Write,
    block: Vec<u8>,
    sum: SipHasher13,
}

impl<'w> FileWriter<'w> {
    pub(super) fn begin(to: &'w mut dyn Write) -> io::Result<Self> {
        to.write_all(&MAGIC)?;
        to.write_all(&VERSION.to_le_bytes())?;
        Ok(Self { to, block: Vec::with_capacity(MAX_BLOCK), sum: SipHasher13::new() })
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        self.write_block()?;
        self.to.write_all(&0_u32.to_le_bytes())?;
        self.to.write_all(&self.sum.finish().to_le_bytes())?;
        self.to.flush()
    }

    pub(crate) fn bytes(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let fit = bytes.len().min(MAX_BLOCK - self.block.len());
            let (now, later) = bytes.split_at(fit);
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == MAX_BLOCK {
                self.write_block()?;
            }
        }
        Ok(())
    }

    fn write_block(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        // A block is never longer than `MAX_BLOCK`.
        #[allow(clippy::cast_possible_truncation)]
        let length = self.block.len() as u32;
        self.to.write_all(&length.to_le_bytes())?;
        self.to.write_all(&self.block)?;
        self.sum.write(&self.block);
        self.block.clear();
        Ok(())
    }

    pub(crate) fn u8(&mut self, value: u8) -> io::Result<()> {
        self.bytes(&[value])
    }

    pub(crate) fn u64(&mut self, value: u64) -> io::Result<()> {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn text(&mut self, text: &[u8]) -> io::Result<()> {
        self.u64(text.len() as u64)?;
        self.bytes(text)
    }

    pub(crate) fn tick(&mut self, tick: Tick) -> io::Result<()> {
        self.u64(tick.as_nanos())
    }

    pub(crate) fn duration(&mut self, duration: Duration) -> io::Result<()> {
        self.u64(duration.as_secs())?;
        self.bytes(&duration.subsec_nanos().to_le_bytes())
    }

    pub(crate) fn quota(&mut self, quota: Quota) -> io::Result<()> {
        self.u64(quota.tokens())?;
        self.duration(quota.period())?;
        self.u8(u8::from(quota.explicit_burst().is_some()))?;
        self.u64(quota.explicit_burst().unwrap_or_default())
    }
}

/// Reads one file.
pub struct FileReader<'r> {
    from: &'r mut dyn Read,
    block: Vec<u8>,
    /// The number of bytes of the block that were taken.
    taken: usize,
    sum: SipHasher13,
}

impl<'r> FileReader<'r> {
    pub(super) fn begin(from: &'r mut dyn Read) -> Result<Self, LoadError> {
        let mut source = Self { from, block: Vec::new(), taken: 0, sum: SipHasher13::new() };
        let (mut magic, mut version) = ([0; MAGIC.len()], [0; 2]);
        source.read(&mut magic)?;
        if magic != MAGIC {
            return Err(LoadError::unusable(
                "it does not begin with \"tollgate\", so it is not a saved limiter",
            ));
        }
        source.read(&mut version)?;
        match u16::from_le_bytes(version) {
            VERSION => Ok(source),
            other => Err(LoadError::unusable(format_args!(
                "its version is {other}; allowed: {VERSION}; it was saved by another release of tollgate"
            ))),
        }
    }

    /// Reads the end of the file, and verifies the checksum.
    pub(super) fn end(mut self) -> Result<(), LoadError> {
        let mut sum = [0; 8];
        if self.taken < self.block.len() || self.next_block()? > 0 {
            return Err(Self::damaged());
        }
        self.read(&mut sum)?;
        if u64::from_le_bytes(sum) == self.sum.finish() { Ok(()) } else { Err(Self::damaged()) }
    }

    pub(crate) fn damaged() -> LoadError {
        LoadError::unusable("it is damaged: its contents and its checksum disagree")
    }

    fn read(&mut self, to: &mut [u8]) -> Result<(), LoadError> {
        self.from.read_exact(to).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => LoadError::unusable("it is truncated"),
            _ => LoadError::Read(error),
        })
    }

    /// Reads the next block and returns its length.
    fn next_block(&mut self) -> Result<usize, LoadError> {
        let mut length = [0; 4];
        self.read(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_BLOCK {
            return Err(Self::damaged());
        }
        let mut block = std::mem::take(&mut self.block);
        block.resize(length, 0);
        self.read(&mut block)?;
        self.sum.write(&block);
        (self.block, self.taken) = (block, 0);
        Ok(length)
    }

    pub(crate) fn bytes(&mut self, mut to: &mut [u8]) -> Result<(), LoadError> {
        while !to.is_empty() {
            if self.taken == self.block.len() && self.next_block()? == 0 {
                return Err(Self::damaged());
            }
            let fit = to.len().min(self.block.len() - self.taken);
            let (now, later) = to.split_at_mut(fit);
            now.copy_from_slice(&self.block[self.taken..self.taken + fit]);
            self.taken += fit;
            to = later;
        }
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], LoadError> {
        let mut bytes = [0; N];
        self.bytes(&mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, LoadError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u64(&mut self) -> Result<u64, LoadError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn text(&mut self) -> Result<Vec<u8>, LoadError> {
        let (mut length, mut text) = (self.u64()?, Vec::new());
        while length > 0 {
            let part = length.min(MAX_BLOCK as u64);
            let from = text.len();
            // `part` is at most `MAX_BLOCK`.
            #[allow(clippy::cast_possible_truncation)]
            text.resize(from + part as usize, 0);
            self.bytes(&mut text[from..])?;
            length -= part;
        }
        Ok(text)
    }

    pub(crate) fn tick(&mut self) -> Result<Tick, LoadError> {
        match self.u64()? {
            nanos if nanos <= Tick::MAX.as_nanos() => Ok(Tick::from_nanos(nanos)),
            _ => Err(Self::damaged()),
        }
    }

    pub(crate) fn duration(&mut self) -> Result<Duration, LoadError> {
        let (secs, nanos) = (self.u64()?, u32::from_le_bytes(self.array()?));
        if nanos >= 1_000_000_000 {
            return Err(Self::damaged());
        }
        Ok(Duration::new(secs, nanos))
    }

    pub(crate) fn quota(&mut self) -> Result<Quota, LoadError> {
        let quota = Quota::new(self.u64()?, self.duration()?);
        match (self.u8()?, self.u64()?) {
            (0, 0) => Ok(quota),
            (1, burst) => Ok(quota.burst(burst)),
            _ => Err(Self::damaged()),
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    fn write(fill: impl Fn(&mut FileWriter<'_>)) -> Vec<u8> {
        let mut file = Vec::new();
        let mut sink = FileWriter::begin(&mut file).unwrap();
        fill(&mut sink);
        sink.end().unwrap();
        file
    }

    fn read<T>(
        mut file: &[u8],
        take: impl Fn(&mut FileReader<'_>) -> Result<T, LoadError>,
    ) -> Result<(T, usize), LoadError> {
        let mut source = FileReader::begin(&mut file)?;
        let value = take(&mut source)?;
        source.end()?;
        Ok((value, file.len()))
    }

    #[test]
    fn values_come_back_and_nothing_behind_the_file_is_read() {
        let quotas = [Quota::per_second(7), Quota::per_day(9).burst(0)];
        let long = vec![7; 3 * MAX_BLOCK + 1];
        let mut file = write(|sink| {
            sink.u8(3).unwrap();
            quotas.iter().for_each(|&quota| sink.quota(quota).unwrap());
            sink.text(&long).unwrap();
            sink.tick(Tick::MAX).unwrap();
        });
        file.extend([1, 2, 3]);
        let take = |source: &mut FileReader<'_>| {
            Ok((source.u8()?, [source.quota()?, source.quota()?], source.text()?, source.tick()?))
        };
        assert_eq!(read(&file, take).unwrap(), ((3, quotas, long, Tick::MAX), 3));
    }

    #[test]
    fn a_file_with_any_bit_changed_or_any_byte_missing_is_refused() {
        let file = write(|sink| (0..4).for_each(|value| sink.u64(value).unwrap()));
        let take = |source: &mut FileReader<'_>| (0..4).map(|_| source.u64()).collect::<Result<Vec<_>, _>>();
        assert!(read(&file, take).is_ok());
        for length in 0..file.len() {
            assert!(read(&file[..length], take).unwrap_err().to_string().contains("truncated"), "{length}");
        }
        for bit in 0..8 * file.len() {
            let mut changed = file.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&changed, take).is_err(), "{bit}");
        }
    }

    /// The length of a text is the largest number, and the file is short.
    #[test]
    fn a_length_that_is_wrong_allocates_no_more_than_a_block() {
        let file = write(|sink| sink.u64(u64::MAX).unwrap());
        assert!(read(&file, |source| source.text()).unwrap_err().to_string().contains("damaged"));
    }

    #[test]
    fn times_that_no_file_contains_are_damage() {
        let of = |number: u64| write(|sink| sink.u64(number).unwrap());
        assert!(read(&of(Tick::MAX.as_nanos() + 1), |source| source.tick()).is_err());
        let file = write(|sink| [1, 1_000_000_000_u64].iter().for_each(|&value| sink.u64(value).unwrap()));
        assert!(read(&file, |source| source.duration()).is_err());
    }
}
