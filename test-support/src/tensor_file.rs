//! Safetensors files.
pub use safetensors::Dtype;
use safetensors::SafeTensors;
use safetensors::tensor::{TensorView, serialize};
use std::path::Path;

/// A safetensors file in memory. What a test asks for must be in it.
#[derive(Clone, Debug)]
pub struct TensorFile(Vec<u8>);

impl TensorFile {
    /// Reads a file.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        Self(std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    /// A file of the given tensors: name, type, shape and little-endian elements.
    pub fn new<'a>(tensors: impl IntoIterator<Item = (&'a str, Dtype, Vec<usize>, Vec<u8>)>) -> Self {
        let tensors: Vec<_> = tensors.into_iter().collect();
        let views = tensors.iter().map(|(name, dtype, shape, data)| {
            (*name, TensorView::new(*dtype, shape.clone(), data).expect("data of the given shape"))
        });
        Self(serialize(views, None).expect("names that differ"))
    }

    /// The bytes of the file.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn parse(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.0).expect("a safetensors file")
    }

    #[track_caller]
    fn tensor(&self, name: &str) -> TensorView<'_> {
        self.parse().tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// `true` if there is such a tensor.
    pub fn has(&self, name: &str) -> bool {
        self.parse().tensor(name).is_ok()
    }

    /// The shape of a tensor.
    #[track_caller]
    pub fn shape(&self, name: &str) -> Vec<usize> {
        self.tensor(name).shape().to_vec()
    }

    /// The bytes of a tensor.
    #[track_caller]
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        self.tensor(name).data().to_vec()
    }

    /// The elements of an f32 tensor.
    #[track_caller]
    pub fn f32(&self, name: &str) -> Vec<f32> {
        let tensor = self.tensor(name);
        assert_eq!(tensor.dtype(), Dtype::F32, "{name}");
        tensor.data().as_chunks().0.iter().map(|&word| f32::from_le_bytes(word)).collect()
    }

    /// The elements of an i64 tensor.
    #[track_caller]
    pub fn i64(&self, name: &str) -> Vec<i64> {
        let tensor = self.tensor(name);
        assert_eq!(tensor.dtype(), Dtype::I64, "{name}");
        tensor.data().as_chunks().0.iter().map(|&word| i64::from_le_bytes(word)).collect()
    }

    /// Token ids, which are kept as i64, or as i32 or u32, whose bytes are those of an id either way.
    #[track_caller]
    pub fn ids(&self, name: &str) -> Vec<u32> {
        let tensor = self.tensor(name);
        if matches!(tensor.dtype(), Dtype::I32 | Dtype::U32) {
            return tensor.data().as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect();
        }
        self.i64(name).into_iter().map(|id| u32::try_from(id).expect("a token id")).collect()
    }
}
