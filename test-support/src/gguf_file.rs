//! GGUF files made in memory.
use ember_loaders::gguf::{GgmlType, Gguf, GgufWriter, Value};

/// The parts of a GGUF file.
#[derive(Clone, Debug, Default)]
pub struct GgufFile {
    /// Keys and values, in order.
    pub metadata: Vec<(String, Value)>,
    /// Name, type, dimensions (columns first) and blocks of each tensor, in order.
    pub tensors: Vec<(String, GgmlType, Vec<usize>, Vec<u8>)>,
}

impl GgufFile {
    /// The parts of an open file.
    ///
    /// # Panics
    /// If it has a tensor of a type that cannot be computed with.
    pub fn of(gguf: &Gguf) -> Self {
        let metadata = gguf.metadata().iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
        let tensors = gguf.tensors().iter().map(|tensor| {
            let ty = tensor.ty.computable().unwrap_or_else(|| panic!("{} is {}", tensor.name, tensor.ty));
            (tensor.name.clone(), ty, tensor.dims.clone(), gguf.bytes(tensor).to_vec())
        });
        Self { metadata, tensors: tensors.collect() }
    }

    /// The bytes of the file.
    ///
    /// # Panics
    /// If the parts do not make a file: a name twice, or data of another size than its dimensions.
    pub fn into_bytes(self) -> Vec<u8> {
        let mut header = GgufWriter::new(Vec::new(), 3, 32).expect("a known version");
        for (key, value) in self.metadata {
            header.metadata(&key, value).unwrap_or_else(|error| panic!("{error}"));
        }
        for (name, ty, dims, _) in &self.tensors {
            header.tensor(name, *ty, dims).unwrap_or_else(|error| panic!("{error}"));
        }
        let mut data = header.start_data().expect("memory to write to");
        for (name, .., bytes) in &self.tensors {
            data.write(name, bytes).unwrap_or_else(|error| panic!("{error}"));
        }
        data.finish().unwrap_or_else(|error| panic!("{error}"))
    }
}
