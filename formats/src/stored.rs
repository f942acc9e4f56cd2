//! Element types as files name them: those that can be computed with, and those that can only be stored and listed.

use std::borrow::Cow;
use std::fmt;

use crate::GgmlType;

/// The element type of a tensor in a file.
///
/// A file may hold more types than kernels know: its other tensors, its metadata and its vocabulary are readable all
/// the same. Whoever computes asks for [`computable`](Self::computable).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoredType {
    /// A type that kernels compute with.
    Computable(GgmlType),
    /// A type of ggml's that nothing here computes with.
    Foreign(&'static ForeignType),
    /// An id that neither name nor size is known of.
    Unknown(u32),
}

/// A type of ggml's that is known by name only, with the size of its blocks where ggml still defines it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ForeignType {
    id: u32,
    name: &'static str,
    /// Elements and bytes of a block.
    block: Option<(usize, usize)>,
}

const fn sized(id: u32, name: &'static str, elements: usize, bytes: usize) -> ForeignType {
    ForeignType { id, name, block: Some((elements, bytes)) }
}

const fn removed(id: u32, name: &'static str) -> ForeignType {
    ForeignType { id, name, block: None }
}

/// ggml's types besides [`GgmlType::ALL`].
static FOREIGN: [ForeignType; 27] = [
    removed(4, "Q4_2 (removed from ggml)"),
    removed(5, "Q4_3 (removed from ggml)"),
    sized(9, "Q8_1", 32, 40),
    sized(15, "Q8_K", 256, 292),
    sized(16, "IQ2_XXS", 256, 66),
    sized(17, "IQ2_XS", 256, 74),
    sized(18, "IQ3_XXS", 256, 98),
    sized(19, "IQ1_S", 256, 50),
    sized(21, "IQ3_S", 256, 110),
    sized(22, "IQ2_S", 256, 82),
    sized(24, "I8", 1, 1),
    sized(25, "I16", 1, 2),
    sized(26, "I32", 1, 4),
    sized(27, "I64", 1, 8),
    sized(28, "F64", 1, 8),
    sized(29, "IQ1_M", 256, 56),
    removed(31, "Q4_0_4_4 (removed from ggml)"),
    removed(32, "Q4_0_4_8 (removed from ggml)"),
    removed(33, "Q4_0_8_8 (removed from ggml)"),
    sized(34, "TQ1_0", 256, 54),
    sized(35, "TQ2_0", 256, 66),
    removed(36, "IQ4_NL_4_4 (removed from ggml)"),
    removed(37, "IQ4_NL_4_8 (removed from ggml)"),
    removed(38, "IQ4_NL_8_8 (removed from ggml)"),
    sized(39, "MXFP4", 32, 17),
    sized(40, "NVFP4", 64, 36),
    sized(41, "Q1_0", 128, 18),
];

impl StoredType {
    /// The type with this ggml id.
    pub fn from_id(id: u32) -> Self {
        match GgmlType::from_id(id) {
            Some(ty) => Self::Computable(ty),
            None => FOREIGN.iter().find(|ty| ty.id == id).map_or(Self::Unknown(id), Self::Foreign),
        }
    }

    /// ggml's number for this type, as stored in files.
    pub const fn id(self) -> u32 {
        match self {
            Self::Computable(ty) => ty.id(),
            Self::Foreign(ty) => ty.id,
            Self::Unknown(id) => id,
        }
    }

    /// ggml's name, such as `IQ3_S`.
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Self::Computable(ty) => ty.name().into(),
            Self::Foreign(ty) => ty.name.into(),
            Self::Unknown(id) => format!("unknown type {id}").into(),
        }
    }

    /// Elements and bytes of a block, where they are known.
    pub const fn block(self) -> Option<(usize, usize)> {
        match self {
            Self::Computable(ty) => Some((ty.block_len(), ty.block_bytes())),
            Self::Foreign(ty) => ty.block,
            Self::Unknown(_) => None,
        }
    }

    /// The type to compute with, if there is one.
    pub const fn computable(self) -> Option<GgmlType> {
        match self {
            Self::Computable(ty) => Some(ty),
            Self::Foreign(_) | Self::Unknown(_) => None,
        }
    }
}

impl From<GgmlType> for StoredType {
    fn from(ty: GgmlType) -> Self {
        Self::Computable(ty)
    }
}

impl PartialEq<GgmlType> for StoredType {
    fn eq(&self, other: &GgmlType) -> bool {
        self.computable() == Some(*other)
    }
}

impl fmt::Display for StoredType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_in_one_table_and_round_trips() {
        for ty in GgmlType::ALL {
            assert_eq!(StoredType::from_id(ty.id()), StoredType::Computable(ty));
            assert!(FOREIGN.iter().all(|foreign| foreign.id != ty.id()), "{ty} cannot be both");
        }
        for id in 0..100 {
            assert_eq!(StoredType::from_id(id).id(), id);
        }
        assert_eq!(StoredType::from_id(99).name(), "unknown type 99");
        assert_eq!(StoredType::from_id(21).name(), "IQ3_S");
        assert_eq!(StoredType::from_id(39).block(), Some((32, 17)));
        assert_eq!(StoredType::from_id(31).block(), None);
        assert_eq!(StoredType::from_id(12), GgmlType::Q4_K);
        assert_eq!(StoredType::from_id(39).computable(), None);
    }
}
