//! Block types of tensors: ggml's numbers and names, and the sizes of their blocks.

use std::fmt;

/// Defines the supported types from one table, so that ids, names and block sizes cannot drift apart.
macro_rules! ggml_types {
    ($($variant:ident = $id:literal, $len:literal weights in $bytes:literal bytes, scales at $scales:expr;)*) => {
        /// The storage of a tensor's elements: plain floats, or quantized blocks. Numbering and layout are ggml's.
        ///
        /// The `*_K` types and `IQ4_XS` are superblocks of 256 weights with integer sub-scales; the other quantized
        /// types are blocks of 32 with one f16 scale (and, for `Q4_1` and `Q5_1`, one f16 minimum).
        #[allow(non_camel_case_types, reason = "the field's own names")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum GgmlType {
            $(
                #[doc = concat!(stringify!($len), " weights in ", stringify!($bytes), " bytes.")]
                $variant,
            )*
        }

        impl GgmlType {
            /// Every supported type.
            pub const ALL: [Self; [$($id),*].len()] = [$(Self::$variant),*];

            /// The type with this ggml id, or `None` when nothing computes with it.
            pub const fn from_id(id: u32) -> Option<Self> {
                match id {
                    $($id => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// ggml's number for this type, as stored in files.
            pub const fn id(self) -> u32 {
                match self {
                    $(Self::$variant => $id,)*
                }
            }

            /// ggml's name, such as `Q4_K`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)*
                }
            }

            /// Weights per block (1 for the unquantized types).
            pub const fn block_len(self) -> usize {
                match self {
                    $(Self::$variant => $len,)*
                }
            }

            /// Bytes per block.
            pub const fn block_bytes(self) -> usize {
                match self {
                    $(Self::$variant => $bytes,)*
                }
            }

            /// Byte offsets of a block's f16 scales: `d`, then that of the minima where there is one. Empty for the
            /// unquantized types.
            pub const fn scale_offsets(self) -> &'static [usize] {
                match self {
                    $(Self::$variant => &$scales,)*
                }
            }
        }
    };
}

ggml_types! {
    F32 = 0, 1 weights in 4 bytes, scales at [];
    F16 = 1, 1 weights in 2 bytes, scales at [];
    BF16 = 30, 1 weights in 2 bytes, scales at [];
    Q4_0 = 2, 32 weights in 18 bytes, scales at [0];
    Q4_1 = 3, 32 weights in 20 bytes, scales at [0, 2];
    Q5_0 = 6, 32 weights in 22 bytes, scales at [0];
    Q5_1 = 7, 32 weights in 24 bytes, scales at [0, 2];
    Q8_0 = 8, 32 weights in 34 bytes, scales at [0];
    Q2_K = 10, 256 weights in 84 bytes, scales at [80, 82];
    Q3_K = 11, 256 weights in 110 bytes, scales at [108];
    Q4_K = 12, 256 weights in 144 bytes, scales at [0, 2];
    Q5_K = 13, 256 weights in 176 bytes, scales at [0, 2];
    Q6_K = 14, 256 weights in 210 bytes, scales at [208];
    IQ4_NL = 20, 32 weights in 18 bytes, scales at [0];
    IQ4_XS = 23, 256 weights in 136 bytes, scales at [0];
}

impl GgmlType {
    /// Bytes of one row of `cols` weights.
    ///
    /// # Panics
    /// If `cols` is not a whole number of blocks.
    pub fn row_bytes(self, cols: usize) -> usize {
        self.checked_row_bytes(cols)
            .unwrap_or_else(|| panic!("{cols} is not a whole number of {self} blocks, or too many"))
    }

    /// [`row_bytes`](Self::row_bytes), or `None` when `cols` is not a whole number of blocks, or on overflow.
    pub const fn checked_row_bytes(self, cols: usize) -> Option<usize> {
        if !cols.is_multiple_of(self.block_len()) {
            return None;
        }
        (cols / self.block_len()).checked_mul(self.block_bytes())
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_round_trip() {
        for ty in GgmlType::ALL {
            assert_eq!(GgmlType::from_id(ty.id()), Some(ty));
        }
        assert_eq!(GgmlType::ALL.len(), 15);
        assert_eq!(GgmlType::Q4_K.name(), "Q4_K");
        assert_eq!(GgmlType::from_id(39), None);
    }

    #[test]
    fn row_bytes_counts_blocks() {
        assert_eq!(GgmlType::F32.row_bytes(3), 12);
        assert_eq!(GgmlType::Q8_0.row_bytes(64), 68);
        assert_eq!(GgmlType::Q6_K.row_bytes(512), 420);
        assert_eq!(GgmlType::Q8_0.checked_row_bytes(33), None);
        assert_eq!(GgmlType::F32.checked_row_bytes(usize::MAX / 2), None);
    }

    #[test]
    #[should_panic(expected = "33 is not a whole number of Q8_0 blocks")]
    fn row_bytes_refuses_part_of_a_block() {
        GgmlType::Q8_0.row_bytes(33);
    }
}
