//! Codes of a few bits in bytes.

use microscaling::RandomStream;
use microscaling::internal::parts::{bitstream, eights, elements_shape};

/// Against a stream of single bits.
#[test]
fn low_bits_first() {
    let stream = RandomStream::new(1, 1);
    for bits in 0..=bitstream::MAX_BITS {
        let mask = (1_u32 << bits) - 1;
        let codes: Vec<u32> = (0..37).map(|i| stream.draw(i) & mask).collect();
        let mut bytes = vec![0; bitstream::byte_len(codes.len(), bits).unwrap()];
        for (i, code) in codes.iter().enumerate() {
            bitstream::put(&mut bytes, i, bits, *code);
        }
        let mut expected = vec![0; (37 * bits as usize).div_ceil(8)];
        for bit in 0..37 * bits as usize {
            let set = codes[bit / bits as usize] >> (bit % bits as usize) & 1;
            expected[bit / 8] |= (set as u8) << (bit % 8);
        }
        assert_eq!(bytes, expected, "{bits} bits");
        for (i, code) in codes.iter().enumerate() {
            assert_eq!(bitstream::get(&bytes, i, bits), *code, "{bits} bits");
            let mut rest = vec![0; codes.len() - i];
            bitstream::Reader::new(&bytes, i, bits).get(&mut rest);
            assert_eq!(rest, codes[i..], "{bits} bits");
        }
        for cut in [0, 3, 8, 20] {
            let mut written = vec![0xff; bytes.len()];
            let mut writer = bitstream::Writer::new(&mut written, bits);
            writer.put(&codes[..cut]);
            writer.put(&codes[cut..]);
            writer.finish();
            assert_eq!(written, bytes, "{bits} bits");
        }
    }
}

#[test]
fn byte_length_overflows_only_where_it_must() {
    assert_eq!(bitstream::byte_len(usize::MAX, 4), Some(usize::MAX / 2 + 1));
    assert_eq!(bitstream::byte_len(usize::MAX, 8), Some(usize::MAX));
    assert_eq!(bitstream::byte_len(usize::MAX, 9), None);
    assert_eq!(bitstream::byte_len(5, 6), Some(4));
}

fn assert_bytes<const BITS: usize>() {
    let stream = RandomStream::new(2, BITS as u64);
    for eights in 0..40 {
        let draw = |i| stream.draw(i) as u8 & (u8::MAX >> (8 - BITS));
        let codes: Vec<u8> = (0..8 * eights).map(draw).collect();
        let mut expected = vec![0; BITS * eights as usize];
        for (i, code) in codes.iter().enumerate() {
            bitstream::put(&mut expected, i, BITS as u32, u32::from(*code));
        }
        let mut bytes = vec![0xff; expected.len()];
        eights::pack(BITS as u32, &codes, &mut bytes);
        assert_eq!(bytes, expected, "{BITS} bits");
    }
}

/// Against the codes written one by one.
#[test]
fn eights_are_a_stream_of_codes() {
    assert_bytes::<2>();
    assert_bytes::<3>();
    assert_bytes::<4>();
    assert_bytes::<5>();
    assert_bytes::<6>();
    assert_bytes::<7>();
    assert_bytes::<8>();
}
#[test]
fn elements_shape_of_any_length() {
    assert_eq!(elements_shape(&[4, 6], 4, 12), [4, 3]);
    assert_eq!(elements_shape(&[4, 3], 4, 6), [6]);
    assert_eq!(elements_shape(&[0, 3], 4, 0), [0]);
    // Bits of such a row overflow.
    let row = usize::MAX / 8 + 1;
    assert_eq!(elements_shape(&[row], 8, row), [row]);
    assert_eq!(elements_shape(&[1, row], 16, 2 * row), [1, 2 * row]);
}
