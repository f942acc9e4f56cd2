//! Arguments that several commands share.
use super::image_args::ProjectorArgs;
use super::progress;
use super::text_input::read_text;
use anyhow::Result;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ember::ModelOptions;
use ember::device::{BackendKind, DeviceOptions, KvType};
use std::path::PathBuf;

/// The model of a command.
#[derive(Args)]
pub struct ModelArg {
    /// GGUF file (any shard of a split one) or Hugging Face folder
    #[arg(short, long, value_name = "MODEL")]
    pub model: PathBuf,
}

/// The chat template of a command.
#[derive(Args)]
pub struct TemplateArg {
    /// Chat template (Jinja, as Hugging Face's) to use in place of the model's
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
}

impl TemplateArg {
    /// The text of the file, if one is named.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&self) -> Result<Option<String>> {
        self.chat_template.as_deref().map(read_text).transpose()
    }
}

/// The device that a model runs on.
#[derive(Args, Clone, Copy)]
#[command(next_help_heading = "Device")]
pub struct DeviceArgs {
    /// Backend that runs the model
    #[arg(long, value_parser = backend_parser(), default_value_t)]
    pub backend: BackendKind,
    /// Which of the backend's devices, as `ember devices` numbers them
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: usize,
    /// CPU threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub threads: Option<usize>,
}

impl From<DeviceArgs> for DeviceOptions {
    fn from(args: DeviceArgs) -> Self {
        Self { backend: args.backend, device: args.device, threads: args.threads }
    }
}

/// The names of the backends, with a line of help for each.
pub fn backend_parser() -> impl TypedValueParser<Value = BackendKind> {
    let value = |kind: BackendKind| PossibleValue::new(kind.name()).help(kind.description());
    PossibleValuesParser::new(BackendKind::ALL.map(value)).map(|name| {
        let named = BackendKind::ALL.into_iter().find(|kind| kind.name() == name);
        named.expect("a name from the list of all")
    })
}

/// The memory of a conversation.
#[derive(Args)]
#[command(next_help_heading = "Device")]
pub struct ContextArgs {
    /// Tokens that prompt and answer may have together [default: the model's context, at most 8192]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub ctx_size: Option<usize>,
    /// Element type of the KV cache
    #[arg(long, value_parser = kv_type(), value_name = "TYPE", default_value_t)]
    pub kv_cache_dtype: KvType,
}

/// Checks of a model's numbers.
#[derive(Args, Clone, Copy)]
#[command(next_help_heading = "Device")]
pub struct CheckArgs {
    /// Look at all numbers of every step, layer by layer, and name the first place with one that is not finite; slow
    #[arg(long)]
    pub check_finite: bool,
}

/// The choices that these flags make about a model.
pub fn model_options(device: DeviceArgs, context: &ContextArgs, projector: ProjectorArgs) -> ModelOptions {
    ModelOptions {
        device: device.into(),
        context_size: context.ctx_size,
        kv_type: context.kv_cache_dtype,
        projector: projector.mmproj,
        image_max_tokens: projector.image_max_tokens,
        check_finite: false,
        chat_template: None,
        progress: progress::reporter(),
    }
}

/// The parser of `--kv-cache-dtype`: every type by its name.
pub fn kv_type() -> impl TypedValueParser<Value = KvType> {
    let value = |ty: KvType| PossibleValue::new(ty.name()).help(ty.description());
    PossibleValuesParser::new(KvType::ALL.map(value)).try_map(|name| name.parse::<KvType>())
}

/// The thinking switch of the model's chat template.
#[derive(Args, Clone, Copy)]
pub struct ThinkArgs {
    /// Let the model think before it answers (only for models whose template has a switch)
    #[arg(long, overrides_with = "no_think")]
    think: bool,
    /// Let the model answer without thinking (only for models whose template has a switch)
    #[arg(long)]
    no_think: bool,
}

impl ThinkArgs {
    /// On, off, or the template's own default.
    pub fn switch(self) -> Option<bool> {
        (self.think || self.no_think).then_some(self.think)
    }
}

/// A number of at least 1.
pub fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(number) => Ok(number),
        Err(_) => Err("not a whole number of at least 1".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        think: ThinkArgs,
    }

    #[test]
    fn the_last_thinking_flag_wins() {
        let switch = |args: &[&str]| Cli::parse_from([&["x"], args].concat()).think.switch();
        assert_eq!(switch(&[]), None);
        assert_eq!(switch(&["--think"]), Some(true));
        assert_eq!(switch(&["--no-think"]), Some(false));
        assert_eq!(switch(&["--think", "--no-think"]), Some(false));
        assert_eq!(switch(&["--no-think", "--think"]), Some(true));
    }

    #[test]
    fn counts_start_at_one() {
        assert_eq!(positive("7"), Ok(7));
        assert!(positive("0").is_err());
        assert!(positive("-1").is_err());
        assert!(positive("many").is_err());
    }
}
