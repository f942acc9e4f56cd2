//! Tensor element types: which ggml types are read, and how their blocks are laid out.

use std::fmt;

/// Defines the supported types from one table, so that ids, names and block sizes cannot drift apart.
macro_rules! ggml_types {
    ($($variant:ident = $id:literal, $block_len:literal weights in $block_bytes:literal bytes;)*) => {
        /// A tensor element type that this crate can read. Numbering and block layout are ggml's.
        #[allow(non_camel_case_types, reason = "the field's own names")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum GgmlType {
            $(
                #[doc = concat!(stringify!($block_len), " weights in ", stringify!($block_bytes), " bytes.")]
                $variant,
            )*
        }

        impl GgmlType {
            /// Every supported type.
            pub const ALL: &[GgmlType] = &[$(GgmlType::$variant),*];

            /// The type with this ggml id, or `None` when it is unknown or not supported.
            pub fn from_id(id: u32) -> Option<Self> {
                match id {
                    $($id => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// ggml's number for this type, as stored in files.
            pub fn id(self) -> u32 {
                match self {
                    $(Self::$variant => $id,)*
                }
            }

            /// ggml's name, such as `Q4_K`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)*
                }
            }

            /// Weights per block (1 for the unquantized types).
            pub fn block_len(self) -> usize {
                match self {
                    $(Self::$variant => $block_len,)*
                }
            }

            /// Bytes per block.
            pub fn block_bytes(self) -> usize {
                match self {
                    $(Self::$variant => $block_bytes,)*
                }
            }
        }
    };
}

ggml_types! {
    F32 = 0, 1 weights in 4 bytes;
    F16 = 1, 1 weights in 2 bytes;
    BF16 = 30, 1 weights in 2 bytes;
    Q4_0 = 2, 32 weights in 18 bytes;
    Q4_1 = 3, 32 weights in 20 bytes;
    Q5_0 = 6, 32 weights in 22 bytes;
    Q5_1 = 7, 32 weights in 24 bytes;
    Q8_0 = 8, 32 weights in 34 bytes;
    Q2_K = 10, 256 weights in 84 bytes;
    Q3_K = 11, 256 weights in 110 bytes;
    Q4_K = 12, 256 weights in 144 bytes;
    Q5_K = 13, 256 weights in 176 bytes;
    Q6_K = 14, 256 weights in 210 bytes;
    IQ4_NL = 20, 32 weights in 18 bytes;
    IQ4_XS = 23, 256 weights in 136 bytes;
}

impl GgmlType {
    /// Bytes of one row of `cols` weights.
    ///
    /// # Panics
    /// When `cols` is not a whole number of blocks.
    pub fn row_bytes(self, cols: usize) -> usize {
        assert!(cols.is_multiple_of(self.block_len()), "{cols} is not a whole number of {self} blocks");
        cols / self.block_len() * self.block_bytes()
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The supported names, for error messages.
pub(super) fn supported_names() -> String {
    GgmlType::ALL.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(", ")
}

/// ggml's name of a type that exists but is not supported here, so that the refusal can use it.
pub(super) fn unsupported_name(id: u32) -> Option<&'static str> {
    Some(match id {
        4 => "Q4_2 (removed from ggml)",
        5 => "Q4_3 (removed from ggml)",
        9 => "Q8_1",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        21 => "IQ3_S",
        22 => "IQ2_S",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        31 => "Q4_0_4_4 (removed from ggml)",
        32 => "Q4_0_4_8 (removed from ggml)",
        33 => "Q4_0_8_8 (removed from ggml)",
        34 => "TQ1_0",
        35 => "TQ2_0",
        36 => "IQ4_NL_4_4 (removed from ggml)",
        37 => "IQ4_NL_4_8 (removed from ggml)",
        38 => "IQ4_NL_8_8 (removed from ggml)",
        39 => "MXFP4",
        40 => "NVFP4",
        41 => "Q1_0",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_round_trip() {
        for &ty in GgmlType::ALL {
            assert_eq!(GgmlType::from_id(ty.id()), Some(ty));
            assert_eq!(unsupported_name(ty.id()), None, "{ty} cannot be both");
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
    }

    #[test]
    #[should_panic(expected = "33 is not a whole number of Q8_0 blocks")]
    fn row_bytes_refuses_part_of_a_block() {
        GgmlType::Q8_0.row_bytes(33);
    }
}
