//! Writing safetensors files: a header, then the tensors' bytes one after another.
use serde_json::{Map, json};
use std::io::{self, Write};

/// An element type of the format.
#[derive(Clone, Copy)]
pub enum Dtype {
    F32,
    I64,
}

impl Dtype {
    /// The name in the header, and bytes per element.
    fn properties(self) -> (&'static str, usize) {
        match self {
            Self::F32 => ("F32", size_of::<f32>()),
            Self::I64 => ("I64", size_of::<i64>()),
        }
    }
}

/// Writes the header of a file of these tensors: name, type and shape, in the order in which their data follow.
///
/// # Errors
/// If `out` cannot be written to.
pub fn write_header(out: &mut impl Write, tensors: &[(&str, Dtype, &[usize])]) -> io::Result<()> {
    let mut header = Map::new();
    let mut start = 0;
    for &(name, dtype, shape) in tensors {
        let (dtype, size) = dtype.properties();
        let end = start + shape.iter().product::<usize>() * size;
        header.insert(name.into(), json!({"dtype": dtype, "shape": shape, "data_offsets": [start, end]}));
        start = end;
    }
    let mut header = json!(header).to_string();
    // Readers map the file: the data must start at a multiple of 8.
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())
}

/// Writes the data of a tensor of [`Dtype::F32`], or a part of it.
///
/// # Errors
/// If `out` cannot be written to.
pub fn write_f32(out: &mut impl Write, values: &[f32]) -> io::Result<()> {
    values.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))
}

/// Writes the data of a tensor of [`Dtype::I64`], or a part of it.
///
/// # Errors
/// If `out` cannot be written to.
pub fn write_i64(out: &mut impl Write, values: impl IntoIterator<Item = i64>) -> io::Result<()> {
    values.into_iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_says_where_the_tensors_are() {
        let mut file = Vec::new();
        write_header(&mut file, &[("tokens", Dtype::I64, &[2]), ("logits", Dtype::F32, &[2, 3])]).unwrap();
        let header_len = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        assert_eq!((header_len % 8, file.len()), (0, 8 + header_len));
        let header: serde_json::Value = serde_json::from_slice(&file[8..]).unwrap();
        assert_eq!(header["tokens"], json!({"dtype": "I64", "shape": [2], "data_offsets": [0, 16]}));
        assert_eq!(header["logits"], json!({"dtype": "F32", "shape": [2, 3], "data_offsets": [16, 40]}));
        file.clear();
        write_i64(&mut file, [-2]).unwrap();
        write_f32(&mut file, &[0.5]).unwrap();
        assert_eq!(file, [&(-2_i64).to_le_bytes()[..], &0.5_f32.to_le_bytes()].concat());
    }
}
