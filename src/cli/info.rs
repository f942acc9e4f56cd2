//! `ember info`: everything a model file says about itself.
use super::info_projector::ProjectorInfo;
use super::visible::{is_obeyed, visible};
use super::{Outcome, output};
use anyhow::Result;
use ember_loaders::gguf::{Array, Gguf, Metadata, TensorInfo, Value};
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Elements of an array that are shown: enough to recognise it.
const SHOWN: usize = 16;

/// Show all metadata and every tensor of a GGUF file, of any architecture, projectors too
#[derive(clap::Args)]
#[command(
    after_help = "Of a longer array, such as the vocabulary, the first 16 elements are shown; --full shows all, and --json is complete.

Examples:
  ember info model.gguf
  ember info model.gguf --full | less -S
  ember info --json mmproj.gguf | jq .projector
  ember info --json model.gguf | jq '.metadata[\"general.architecture\"]'"
)]
pub struct Args {
    /// GGUF file; of a split model, any shard
    model: PathBuf,
    /// Show every element of every array
    #[arg(long)]
    full: bool,
    /// Print one JSON object, complete
    #[arg(long)]
    json: bool,
}

/// Prints the description of the model.
pub fn run(args: Args) -> Result<Outcome> {
    let gguf = Gguf::open(&args.model)?;
    let projector = ProjectorInfo::of(&gguf, &args.model);
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        write_json(&gguf, projector, &mut out)?
    } else {
        write_text(&gguf, projector, if args.full { usize::MAX } else { SHOWN }, &mut out)?
    }
    out.flush()?;
    Ok(Outcome::Done)
}

/// The JSON form of a model.
#[derive(Serialize)]
struct Description<'a> {
    files: &'a [PathBuf],
    version: u32,
    file_bytes: u64,
    parameters: usize,
    /// Null when the file holds no vision tower.
    projector: Option<ProjectorInfo>,
    metadata: &'a Metadata,
    tensors: Vec<Tensor<'a>>,
}

#[derive(Serialize)]
struct Tensor<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    ty: Cow<'static, str>,
    dims: &'a [usize],
    /// Null when the size of the type is not known.
    bytes: Option<usize>,
}

impl<'a> From<&'a TensorInfo> for Tensor<'a> {
    fn from(tensor: &'a TensorInfo) -> Self {
        Self { name: &tensor.name, ty: tensor.ty.name(), dims: &tensor.dims, bytes: tensor.n_bytes() }
    }
}

fn write_json(gguf: &Gguf, projector: Option<ProjectorInfo>, out: &mut impl Write) -> io::Result<()> {
    let description = Description {
        files: gguf.paths(),
        version: gguf.version(),
        file_bytes: gguf.file_bytes(),
        parameters: parameters(gguf),
        projector,
        metadata: gguf.metadata(),
        tensors: gguf.tensors().iter().map(Tensor::from).collect(),
    };
    output::json_line(out, &description)
}

/// `most` is the number of elements of an array that are shown.
fn write_text(
    gguf: &Gguf,
    projector: Option<ProjectorInfo>,
    most: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    for path in gguf.paths() {
        writeln!(out, "file: {}", line(&path.display().to_string()))?;
    }
    writeln!(out, "format: GGUF version {}, {} bytes", gguf.version(), gguf.file_bytes())?;
    writeln!(out, "parameters: {}", parameters(gguf))?;
    if let Some(projector) = projector {
        writeln!(out, "{}", visible(&projector.to_string()))?;
    }
    writeln!(out, "\nmetadata: {} keys", gguf.metadata().len())?;
    for (key, value) in gguf.metadata().iter() {
        writeln!(out, "  {} ({}): {}", line(key), type_text(value), value_text(value, most))?;
    }
    writeln!(out, "\ntensors: {}", gguf.tensors().len())?;
    let name_width = gguf.tensors().iter().map(|t| t.name.chars().count()).max().unwrap_or(0);
    for tensor in gguf.tensors() {
        let name = line(&tensor.name);
        let bytes = tensor.n_bytes().map_or("size unknown".to_owned(), |bytes| format!("{bytes:>12} bytes"));
        writeln!(out, "  {name:name_width$}  {:7} {bytes:18}  {:?}", tensor.ty, tensor.dims)?;
    }
    Ok(())
}

fn parameters(gguf: &Gguf) -> usize {
    gguf.tensors().iter().map(TensorInfo::n_elements).sum()
}

fn type_text(value: &Value) -> String {
    match value {
        Value::Array(array) => format!("array of {} {}", array.len(), array.element_name()),
        _ => value.type_name(),
    }
}

/// The value; the lines of a longer text (a chat template) start below its key.
fn value_text(value: &Value, most: usize) -> String {
    match value {
        Value::String(text) if text.contains('\n') => {
            text.split('\n').map(|part| format!("\n    {}", line(part))).collect()
        }
        Value::String(text) => line(text),
        Value::Array(array) => array_text(array, most),
        other => other.to_string(),
    }
}

/// The first elements of an array, and how many more there are.
fn array_text(array: &Array, most: usize) -> String {
    let first = match array {
        Array::Array(elements) => {
            let texts: Vec<_> = elements.iter().take(most).map(|element| array_text(element, most)).collect();
            format!("[{}]", texts.join(", "))
        }
        // Its strings are quoted and escaped already.
        other => other.first(most).to_string(),
    };
    match array.len().checked_sub(most) {
        None | Some(0) => first,
        Some(more) => format!("{}, ... {more} more]", first.strip_suffix(']').unwrap_or(&first)),
    }
}

/// The text as a part of a line: what could drive the terminal, or a program that reads lines and columns, is escaped.
fn line(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match is_obeyed(c) || c.is_control() {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_escapes_are_shown_and_not_obeyed() {
        assert_eq!(value_text(&Value::from("a\u{1b}[31mé\u{202e}"), SHOWN), "a\\u{1b}[31mé\\u{202e}");
    }

    #[test]
    fn long_texts_keep_their_lines() {
        assert_eq!(value_text(&Value::from("{% if %}\n x\ty"), SHOWN), "\n    {% if %}\n     x\\ty");
    }

    #[test]
    fn long_arrays_are_shortened() {
        let value = Value::from((0..1000).collect::<Vec<i32>>());
        assert_eq!(type_text(&value), "array of 1000 i32");
        assert_eq!(value_text(&value, 3), "[0, 1, 2, ... 997 more]");
        assert!(value_text(&value, usize::MAX).ends_with(", 998, 999]"));
        assert_eq!(value_text(&value, 1000), value_text(&value, usize::MAX));
        let texts = Value::from(vec!["]".to_owned(), "b\u{1b}".to_owned(), "c".to_owned()]);
        assert_eq!(value_text(&texts, 1), "[\"]\", ... 2 more]");
        assert_eq!(value_text(&texts, 2), "[\"]\", \"b\\u{1b}\", ... 1 more]");
        let nested =
            Value::from(Array::Array(vec![Array::U8(vec![1, 2, 3]), Array::U8(vec![]), Array::U8(vec![])]));
        assert_eq!(value_text(&nested, 2), "[[1, 2, ... 1 more], [], ... 1 more]");
    }
}
