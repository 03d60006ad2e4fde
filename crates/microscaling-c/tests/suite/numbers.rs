//! Numbers to test with.

use microscaling::{ElementFormat, RandomStream};

/// The numbers and their neighbours as float32 patterns, with both signs.
pub(crate) fn with_neighbors(magnitudes: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let near = |x: u32| [x.saturating_sub(1), x, x + 1];
    let all = magnitudes.into_iter().flat_map(near);
    all.flat_map(|x| [x, x | 0x8000_0000]).collect()
}

/// All bfloat16 numbers, NaN included.
pub(crate) fn bfloat16() -> impl Iterator<Item = u32> {
    (0..=u32::from(u16::MAX)).map(|x| x << 16)
}

/// Patterns of any kind.
pub(crate) fn patterns(seed: u64, count: u64) -> Vec<u32> {
    let stream = RandomStream::new(seed, 7);
    (0..count).map(|i| stream.draw(i)).collect()
}

/// The numbers of an element format, the midpoints between them, and the neighbours of both.
pub(crate) fn midpoints(element: ElementFormat) -> Vec<u32> {
    let codes = 0..1_u32 << element.bits();
    let numbers = codes
        .map(|code| element.decode(code))
        .filter(|x| x.is_finite());
    let mut numbers: Vec<f32> = numbers.map(f32::abs).collect();
    numbers.sort_by(f32::total_cmp);
    numbers.dedup();
    let means = numbers
        .windows(2)
        .map(|pair| (pair[0] / 2.0 + pair[1] / 2.0).to_bits());
    let beyond = [
        numbers[numbers.len() - 1] * 1.5,
        f32::MAX,
        f32::INFINITY,
        f32::from_bits(1),
    ];
    let exact = numbers.iter().chain(&beyond).map(|x| x.to_bits());
    with_neighbors(means.chain(exact))
}

/// A block of `count` numbers of one of several kinds: number `seed` of them.
pub(crate) fn block(seed: u64, count: usize, element: ElementFormat) -> Vec<f32> {
    let stream = RandomStream::new(seed, 11);
    let kind = stream.draw(1 << 40);
    // Around 2^exponent: the whole range of float32, or a part.
    let exponent = match kind % 4 {
        0 => (kind >> 8) as i32 % 10 - 5,
        1 => -149 + (kind >> 8) as i32 % 40,
        2 => 100 + (kind >> 8) as i32 % 28,
        _ => (kind >> 8) as i32 % 276 - 149,
    };
    let spread = [0, 3, 12, 60][(kind >> 2) as usize % 4];
    let number = |i: u64| {
        let (word, choice) = (stream.draw(2 * i), stream.draw(2 * i + 1));
        // Few bits, so that ties and equal numbers are frequent.
        let short = if choice & 1 == 0 {
            0x807f_ffff
        } else {
            0xff80_0000_u32 >> (choice >> 1 & 15)
        };
        let field = exponent + 127 - (word >> 8) as i32 % (spread + 1);
        let field = field.clamp(0, 254) as u32;
        match choice >> 8 & 0xff {
            0..=9 => word & 0x8000_0000,
            10..=13 => word & 0x807f_ffff,
            _ => (word & 0x807f_ffff & (short | 0x8000_0000)) | field << 23,
        }
    };
    let mut block: Vec<u32> = (0..count as u64).map(number).collect();
    // The largest magnitude at an edge of a scale's rule.
    let at = (kind >> 16) as usize % count.max(1);
    let edge = [1.0, element.max(), element.max() / 2.0, 1.75, 1.9375][(kind >> 4) as usize % 5];
    let edge = f32::from_bits(
        edge.to_bits() & 0x007f_ffff | ((exponent + 127).clamp(0, 254) as u32) << 23,
    );
    match kind >> 24 {
        0..=9 => block[at] = f32::NAN.to_bits(),
        10..=19 => block[at] = f32::NEG_INFINITY.to_bits(),
        20..=29 => block.fill(word_sign(kind)),
        30..=160 => block[at] = (edge.to_bits() + kind % 3).saturating_sub(1) | word_sign(kind),
        _ => {}
    }
    block.into_iter().map(f32::from_bits).collect()
}

fn word_sign(word: u32) -> u32 {
    word << 31
}
