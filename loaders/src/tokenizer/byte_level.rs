//! GPT-2's byte alphabet: every byte as one printable character, so that token texts are valid strings.

use std::sync::LazyLock;

/// The character that stands for each byte: itself where it is printable Latin-1, the others from U+0100 on.
static CHARS: LazyLock<[char; 256]> = LazyLock::new(|| {
    let mut next = 0x100;
    std::array::from_fn(|byte| {
        let byte = u8::try_from(byte).expect("an index below 256");
        if matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF) {
            char::from(byte)
        } else {
            next += 1;
            char::from_u32(next - 1).expect("at most U+0143")
        }
    })
});

/// The byte of each character from U+0000 to U+0143.
static BYTES: LazyLock<[Option<u8>; 0x144]> = LazyLock::new(|| {
    let mut bytes = [None; 0x144];
    for (byte, &character) in (0..=u8::MAX).zip(CHARS.iter()) {
        bytes[character as usize] = Some(byte);
    }
    bytes
});

/// The character that stands for `byte`.
pub(super) fn byte_to_char(byte: u8) -> char {
    CHARS[usize::from(byte)]
}

/// The byte that `character` stands for.
pub(super) fn char_to_byte(character: char) -> Option<u8> {
    BYTES.get(character as usize).copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_is_gpt2s() {
        assert_eq!(byte_to_char(b' '), 'Ġ');
        assert_eq!(byte_to_char(b'\n'), 'Ċ');
        assert_eq!(byte_to_char(b'a'), 'a');
        assert_eq!(byte_to_char(0xAD), 'Ń');
        assert_eq!(char_to_byte('\u{144}'), None);
        assert_eq!(char_to_byte(' '), None);
        for byte in 0..=u8::MAX {
            assert_eq!(char_to_byte(byte_to_char(byte)), Some(byte));
        }
    }
}
