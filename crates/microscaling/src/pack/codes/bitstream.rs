//! Codes of a few bits one after the other, low bits first.

/// Most bits of a code: with those before it in its first byte they fit 32.
pub const MAX_BITS: u32 = 25;

/// Number of bytes of `count` codes; `None` if it overflows. The last byte is filled up with zeros.
pub fn byte_len(count: usize, bits: u32) -> Option<usize> {
    // In whole bytes and the rest, so that only what does not fit overflows.
    let whole = (count / 8).checked_mul(bits as usize)?;
    whole.checked_add((count % 8 * bits as usize).div_ceil(8))
}

/// The bytes that code number `index` is in, and where it begins in the first of them.
fn place(bytes: usize, index: usize, bits: u32) -> (core::ops::Range<usize>, u32) {
    let (eights, rest) = (index / 8, index % 8);
    let bit = rest * bits as usize;
    let first = eights * bits as usize + bit / 8;
    let begin = (bit % 8) as u32;
    let end = first + (begin + bits).div_ceil(8) as usize;
    debug_assert!(bits <= MAX_BITS && end <= bytes);
    (first..end, begin)
}

/// Writes code number `index`, of which only the low `bits` may be set, over zeros.
pub fn put(bytes: &mut [u8], index: usize, bits: u32, code: u32) {
    debug_assert!(code >> bits == 0);
    let (range, begin) = place(bytes.len(), index, bits);
    let mut rest = code << begin;
    for byte in &mut bytes[range] {
        *byte |= rest as u8;
        rest >>= 8;
    }
}

/// Reads code number `index`.
pub fn get(bytes: &[u8], index: usize, bits: u32) -> u32 {
    let (range, begin) = place(bytes.len(), index, bits);
    let joined = bytes[range]
        .iter()
        .rev()
        .fold(0, |joined, byte| joined << 8 | u32::from(*byte));
    (joined >> begin) & ((1 << bits) - 1)
}

/// Writes codes one after the other.
pub struct Writer<'a> {
    bytes: &'a mut [u8],
    bits: u32,
    /// The bits that are not written yet, and their number, fewer than 8 between calls.
    rest: u64,
    rest_bits: u32,
}

impl<'a> Writer<'a> {
    /// From the first bit of `bytes` on.
    pub fn new(bytes: &'a mut [u8], bits: u32) -> Self {
        debug_assert!(bits <= MAX_BITS);
        Self {
            bytes,
            bits,
            rest: 0,
            rest_bits: 0,
        }
    }

    /// Writes codes, of which only the low bits may be set.
    #[inline(always)]
    pub fn put(&mut self, codes: &[u32]) {
        let whole = if self.rest_bits == 0 {
            // The usual numbers as constants, so that there are vectors for them.
            match self.bits {
                4 => self.put_eights::<4>(codes),
                6 => self.put_eights::<6>(codes),
                8 => self.put_eights::<8>(codes),
                _ => 0,
            }
        } else {
            0
        };
        for code in &codes[whole..] {
            self.rest |= u64::from(*code) << self.rest_bits;
            self.rest_bits += self.bits;
            while self.rest_bits >= 8 {
                self.put_bytes(&[self.rest as u8]);
                self.rest >>= 8;
                self.rest_bits -= 8;
            }
        }
    }

    /// Writes as many codes as there are whole eights of, which take `BITS` bytes each. Returns how many.
    #[inline(always)]
    fn put_eights<const BITS: usize>(&mut self, codes: &[u32]) -> usize {
        let (eights, rest) = codes.as_chunks::<8>();
        let (head, tail) = core::mem::take(&mut self.bytes).split_at_mut(BITS * eights.len());
        for (bytes, codes) in head.as_chunks_mut::<BITS>().0.iter_mut().zip(eights) {
            let shifted = |i: usize| u64::from(codes[i]) << (BITS * i);
            let joined = (0..8)
                .fold(0, |joined, i| joined | shifted(i))
                .to_le_bytes();
            bytes.copy_from_slice(&joined[..BITS]);
        }
        self.bytes = tail;
        codes.len() - rest.len()
    }

    #[inline(always)]
    fn put_bytes(&mut self, bytes: &[u8]) {
        let (head, tail) = core::mem::take(&mut self.bytes).split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        self.bytes = tail;
    }

    /// Fills the last byte up with zeros.
    #[inline(always)]
    pub fn finish(mut self) {
        if self.rest_bits > 0 {
            let last = [self.rest as u8];
            self.put_bytes(&last);
        }
    }
}

/// Reads codes one after the other.
pub struct Reader<'a> {
    bytes: &'a [u8],
    bits: u32,
    /// The bits that are read but not used yet, and their number, fewer than 8 between calls.
    rest: u64,
    rest_bits: u32,
}

impl<'a> Reader<'a> {
    /// From code number `index` on.
    pub fn new(bytes: &'a [u8], index: usize, bits: u32) -> Self {
        debug_assert!(bits <= MAX_BITS);
        let (eights, rest) = (index / 8, index % 8);
        let mut reader = Self {
            bytes: &bytes[eights * bits as usize..],
            bits,
            rest: 0,
            rest_bits: 0,
        };
        reader.get(&mut [0; 8][..rest]);
        reader
    }

    /// The next codes.
    #[inline(always)]
    pub fn get(&mut self, codes: &mut [u32]) {
        let whole = if self.rest_bits == 0 {
            // The usual numbers as constants, so that there are vectors for them.
            match self.bits {
                4 => self.get_eights::<4>(codes),
                6 => self.get_eights::<6>(codes),
                8 => self.get_eights::<8>(codes),
                _ => 0,
            }
        } else {
            0
        };
        for code in &mut codes[whole..] {
            while self.rest_bits < self.bits {
                let (first, others) = self
                    .bytes
                    .split_first()
                    .expect("there is a byte for every bit");
                self.rest |= u64::from(*first) << self.rest_bits;
                self.rest_bits += 8;
                self.bytes = others;
            }
            *code = self.rest as u32 & ((1 << self.bits) - 1);
            self.rest >>= self.bits;
            self.rest_bits -= self.bits;
        }
    }

    /// The next codes, as many as there are whole eights of. Returns how many.
    #[inline(always)]
    fn get_eights<const BITS: usize>(&mut self, codes: &mut [u32]) -> usize {
        let eights = codes.as_chunks_mut::<8>().0;
        let whole = 8 * eights.len();
        let (head, tail) = self.bytes.split_at(BITS * eights.len());
        for (codes, bytes) in eights.iter_mut().zip(head.as_chunks::<BITS>().0) {
            *codes = eight(bytes);
        }
        self.bytes = tail;
        whole
    }
}

/// Eight codes, which take as many bytes as one of them takes bits: 1 to 8.
#[inline(always)]
pub fn eight<const BITS: usize>(bytes: &[u8; BITS]) -> [u32; 8] {
    let mut joined = [0; 8];
    joined[..BITS].copy_from_slice(bytes);
    let joined = u64::from_le_bytes(joined);
    core::array::from_fn(
        #[inline(always)]
        |i| (joined >> (BITS * i)) as u32 & ((1 << BITS) - 1),
    )
}
