//! Keys and values: the types of their elements, and the layout of their pages.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use crate::GgmlType;

/// The element type of a KV cache. Rounding is to nearest even; for q8_0 it is that of GGUF's reference quantizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvType {
    /// 16-bit float.
    #[default]
    F16,
    /// The upper half of a 32-bit float: the range of f32, three digits less precise than f16.
    BF16,
    /// 32-bit float.
    F32,
    /// GGUF's blocks of 32 signed bytes and one f16 step: 8.5 bits per element.
    Q8_0,
}

impl KvType {
    /// Every type.
    pub const ALL: [Self; 4] = [Self::F16, Self::BF16, Self::F32, Self::Q8_0];

    /// The name in flags and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
            Self::Q8_0 => "q8_0",
        }
    }

    /// The size of an element, in words for a user.
    pub const fn description(self) -> &'static str {
        match self {
            Self::F16 => "2 bytes per element",
            Self::BF16 => "2 bytes per element, with the range of f32 and less precision than f16",
            Self::F32 => "4 bytes per element",
            Self::Q8_0 => "34 bytes per 32 elements",
        }
    }

    /// The block type with the same layout.
    pub const fn ggml_type(self) -> GgmlType {
        match self {
            Self::F16 => GgmlType::F16,
            Self::BF16 => GgmlType::BF16,
            Self::F32 => GgmlType::F32,
            Self::Q8_0 => GgmlType::Q8_0,
        }
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for KvType {
    type Err = UnknownKvType;

    fn from_str(name: &str) -> Result<Self, UnknownKvType> {
        Self::ALL.into_iter().find(|ty| ty.name() == name).ok_or_else(|| UnknownKvType(name.to_owned()))
    }
}

/// A name that no [`KvType`] has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKvType(pub String);

impl fmt::Display for UnknownKvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = KvType::ALL.map(KvType::name).join(", ");
        write!(f, "no KV cache type is called `{}`; there are {names}", self.0)
    }
}

impl Error for UnknownKvType {}

/// The layout of one layer's pool of keys, and equally of its values:
/// `[n_blocks, n_kv_heads, block_len, head_dim]` elements of `ty`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KvLayout {
    /// Element type.
    pub ty: KvType,
    /// Positions per block.
    pub block_len: usize,
    /// Heads of keys and of values.
    pub n_kv_heads: usize,
    /// Elements of one head.
    pub head_dim: usize,
}

/// A layout that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvLayoutError {
    /// A dimension is zero.
    Empty {
        /// Positions per block.
        block_len: usize,
        /// Heads.
        n_kv_heads: usize,
        /// Elements of one head.
        head_dim: usize,
    },
    /// The head does not divide into q8_0 blocks.
    Q8HeadDim(usize),
}

impl fmt::Display for KvLayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { block_len, n_kv_heads, head_dim } => write!(
                f,
                "a KV cache of {n_kv_heads} heads x {head_dim} in blocks of {block_len} positions holds nothing"
            ),
            Self::Q8HeadDim(dim) => write!(
                f,
                "a q8_0 KV cache needs a head size that is a multiple of 32, this model's is {dim}: use f16"
            ),
        }
    }
}

impl Error for KvLayoutError {}

impl KvLayout {
    /// Positions per block unless there is a reason for another number: the blocks of an 8192-token context are
    /// few enough to list, and a sequence wastes 16 positions on average.
    pub const DEFAULT_BLOCK_LEN: usize = 32;

    /// A layout whose sizes fit together.
    ///
    /// # Errors
    /// [`KvLayoutError`] when a size is zero or a head does not divide into blocks of `ty`.
    pub fn new(
        ty: KvType,
        block_len: usize,
        n_kv_heads: usize,
        head_dim: usize,
    ) -> Result<Self, KvLayoutError> {
        let layout = Self { ty, block_len, n_kv_heads, head_dim };
        layout.check().map(|()| layout)
    }

    /// Checks a layout whose fields were set by hand.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn check(&self) -> Result<(), KvLayoutError> {
        let Self { ty, block_len, n_kv_heads, head_dim } = *self;
        if block_len == 0 || n_kv_heads == 0 || head_dim == 0 {
            return Err(KvLayoutError::Empty { block_len, n_kv_heads, head_dim });
        }
        if !head_dim.is_multiple_of(ty.ggml_type().block_len()) {
            return Err(KvLayoutError::Q8HeadDim(head_dim));
        }
        Ok(())
    }

    /// Bytes of one head at one position.
    ///
    /// # Panics
    /// If the head does not divide into blocks of its type.
    pub fn row_bytes(&self) -> usize {
        self.ty.ggml_type().row_bytes(self.head_dim)
    }

    /// Bytes of one block of keys (or of values) of one layer.
    ///
    /// # Panics
    /// As [`row_bytes`](Self::row_bytes).
    pub fn block_bytes(&self) -> usize {
        self.n_kv_heads * self.block_len * self.row_bytes()
    }

    /// [`row_bytes`](Self::row_bytes) where memory is made of 32-bit words, and rows of whole ones.
    ///
    /// # Panics
    /// As [`row_bytes`](Self::row_bytes).
    pub fn row_words(&self) -> usize {
        self.row_bytes().div_ceil(4)
    }

    /// [`block_bytes`](Self::block_bytes) where memory is made of 32-bit words, and rows of whole ones.
    ///
    /// # Panics
    /// As [`row_bytes`](Self::row_bytes).
    pub fn block_words(&self) -> usize {
        self.n_kv_heads * self.block_len * self.row_words()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for ty in KvType::ALL {
            assert_eq!(ty.to_string().parse(), Ok(ty));
        }
        let error = "Q8_0".parse::<KvType>().unwrap_err();
        assert_eq!(error.to_string(), "no KV cache type is called `Q8_0`; there are f16, bf16, f32, q8_0");
    }

    #[test]
    fn sizes_of_a_page() {
        let sizes = |ty, head_dim| {
            let layout = KvLayout::new(ty, 16, 2, head_dim).unwrap();
            (layout.row_bytes(), layout.block_bytes(), layout.row_words(), layout.block_words())
        };
        assert_eq!(sizes(KvType::F32, 64), (256, 8192, 64, 2048));
        assert_eq!(sizes(KvType::F16, 64), (128, 4096, 32, 1024));
        assert_eq!(sizes(KvType::BF16, 80), (160, 5120, 40, 1280));
        assert_eq!(sizes(KvType::Q8_0, 64), (68, 2176, 17, 544));
        // Three blocks: 24 words of bytes, three f16 steps in two words.
        assert_eq!(sizes(KvType::Q8_0, 96), (102, 3264, 26, 832));
    }
}
