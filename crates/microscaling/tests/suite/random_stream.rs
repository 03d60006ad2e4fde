//! Philox against its authors' answers, and streams against single draws.

use microscaling::RandomStream;

fn block(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let stream = RandomStream::new(pair(key[0], key[1]), pair(counter[2], counter[3]));
    stream.block(pair(counter[0], counter[1]))
}

/// `philox4x32 10` of the file kat_vectors of the authors' library Random123.
#[test]
fn known_answers() {
    assert_eq!(
        block([0; 4], [0; 2]),
        [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]
    );
    assert_eq!(
        block([u32::MAX; 4], [u32::MAX; 2]),
        [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]
    );
    assert_eq!(
        block(
            [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
            [0xa4093822, 0x299f31d0]
        ),
        [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]
    );
}

#[test]
fn fill_is_draw_by_position() {
    let stream = RandomStream::new(0x0123_4567_89ab_cdef, 42);
    for start in [0, 1, 2, 3, 4, 63, 64, 1001, (1 << 34) - 3] {
        for len in [0, 1, 3, 4, 31, 64, 65, 200] {
            let mut words = vec![0; len];
            stream.fill(start, &mut words);
            for (i, word) in words.into_iter().enumerate() {
                assert_eq!(word, stream.draw(start + i as u64), "{start} + {i}");
            }
        }
    }
}

#[test]
fn seed_and_stream_matter() {
    let words = |seed, stream| -> Vec<u32> {
        (0..8)
            .map(|i| RandomStream::new(seed, stream).draw(i))
            .collect()
    };
    assert_ne!(words(0, 0), words(1, 0));
    assert_ne!(words(0, 0), words(0, 1));
    assert_ne!(words(0, 0), words(1 << 32, 0));
    assert_ne!(words(0, 0), words(0, 1 << 32));
}

#[test]
fn rows_are_draws_by_position() {
    let stream = RandomStream::new(5, 6);
    for (first, apart) in [(0, 16), (4, 100), (1, 16), (8, 17), (40, 0)] {
        for count in [0, 1, 3, 4, 5, 8, 64] {
            let mut rows = vec![[0; 16]; count];
            stream.fill_rows(first, apart, &mut rows);
            for (i, row) in rows.iter().enumerate() {
                for (j, word) in row.iter().enumerate() {
                    let position = first + i as u64 * apart + j as u64;
                    assert_eq!(*word, stream.draw(position), "{first} {apart} {count} {i}");
                }
            }
        }
    }
}
