//! `ember info`: everything a model file says about itself.
use super::info_projector::ProjectorInfo;
use super::{Outcome, output};
use anyhow::Result;
use ember_loaders::gguf::{Gguf, Metadata, TensorInfo, Value};
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

/// Show all metadata and every tensor of a GGUF file, of any architecture, projectors too
#[derive(clap::Args)]
#[command(after_help = "Examples:
  ember info model.gguf
  ember info model.gguf | less -S
  ember info --json mmproj.gguf | jq .projector
  ember info --json model.gguf | jq '.metadata[\"general.architecture\"]'")]
pub struct Args {
    /// GGUF file; of a split model, any shard
    model: PathBuf,
    /// Print one JSON object
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
        write_text(&gguf, projector, &mut out)?
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

fn write_text(gguf: &Gguf, projector: Option<ProjectorInfo>, out: &mut impl Write) -> io::Result<()> {
    for path in gguf.paths() {
        writeln!(out, "file: {}", path.display())?;
    }
    writeln!(out, "format: GGUF version {}, {} bytes", gguf.version(), gguf.file_bytes())?;
    writeln!(out, "parameters: {}", parameters(gguf))?;
    if let Some(projector) = projector {
        writeln!(out, "{projector}")?;
    }
    writeln!(out, "\nmetadata: {} keys", gguf.metadata().len())?;
    for (key, value) in gguf.metadata().iter() {
        writeln!(out, "  {} ({}): {}", visible(key), type_text(value), value_text(value))?;
    }
    writeln!(out, "\ntensors: {}", gguf.tensors().len())?;
    let name_width = gguf.tensors().iter().map(|t| t.name.chars().count()).max().unwrap_or(0);
    for tensor in gguf.tensors() {
        let name = visible(&tensor.name);
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

/// The value in full; the lines of a longer text (a chat template) start below its key.
fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) if text.contains('\n') => {
            text.split('\n').map(|line| format!("\n    {}", visible(line))).collect()
        }
        Value::String(text) => visible(text),
        // Strings in arrays are quoted and escaped already.
        other => other.to_string(),
    }
}

/// The text with control characters escaped: a file must not be able to drive the terminal.
fn visible(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if c.is_control() {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_escapes_are_shown_and_not_obeyed() {
        assert_eq!(value_text(&Value::from("a\u{1b}[31mé")), "a\\u{1b}[31mé");
    }

    #[test]
    fn long_texts_keep_their_lines() {
        assert_eq!(value_text(&Value::from("{% if %}\n x\ty")), "\n    {% if %}\n     x\\ty");
    }

    #[test]
    fn arrays_are_whole() {
        let value = Value::from((0..1000).collect::<Vec<i32>>());
        assert_eq!(type_text(&value), "array of 1000 i32");
        assert!(value_text(&value).ends_with(", 998, 999]"));
    }
}
