//! The command line: one file per subcommand, and what they share.
#[macro_use]
mod visible;

mod advice;
mod args;
mod bench;
mod chat;
mod detokenize;
mod devices;
mod escapes;
mod generation_args;
mod image_args;
mod info;
mod info_projector;
mod interrupt;
mod logits;
mod model;
mod out_file;
mod output;
mod paths;
mod progress;
mod render;
mod run;
mod safetensors;
mod statistics;
mod synth;
mod text_input;
mod tokenize;
mod turn;
mod vision;

use clap::error::ErrorKind;
use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

/// Exit status after Ctrl-C, as shells report it: 128 + SIGINT.
const EXIT_INTERRUPTED: u8 = 130;
/// Exit status when the command line itself is wrong.
const EXIT_USAGE: u8 = 2;

/// Run language models from GGUF files: Mistral 3, Qwen3, Llama and Qwen2.
#[derive(Parser)]
#[command(name = "ember", version, propagate_version = true, disable_help_subcommand = true)]
#[command(after_help = "Examples:
  ember run -m model.gguf \"The capital of France is\"
  ember run -m model.gguf --image photo.jpg \"What is this?\"
  ember chat -m model.gguf
  ember info model.gguf

`ember COMMAND --help` says more about a command.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Chat(chat::Args),
    Info(info::Args),
    Devices(devices::Args),
    Tokenize(tokenize::Args),
    Detokenize(detokenize::Args),
    Render(render::Args),
    Logits(logits::Args),
    Vision(vision::Args),
    Synth(synth::Args),
    Bench(bench::Args),
}

/// The outcome of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Interrupted,
}

/// Parses the command line, runs the command and reports its failure.
pub fn main() -> ExitCode {
    let cli = command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match cli {
        Ok(cli) => cli,
        Err(error) => return report_usage(&error),
    };
    let result = interrupt::install().and_then(|()| run_command(cli.command));
    match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Interrupted) => ExitCode::from(EXIT_INTERRUPTED),
        Err(error) => report(&error),
    }
}

/// The command line's description, whose help and errors have colours only where they may.
fn command() -> clap::Command {
    Cli::command().color(if output::may_style() { ColorChoice::Auto } else { ColorChoice::Never })
}

fn run_command(command: Command) -> anyhow::Result<Outcome> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Chat(args) => chat::run(args),
        Command::Info(args) => info::run(args),
        Command::Devices(args) => devices::run(args),
        Command::Tokenize(args) => tokenize::run(args),
        Command::Detokenize(args) => detokenize::run(args),
        Command::Render(args) => render::run(args),
        Command::Logits(args) => logits::run(args),
        Command::Vision(args) => vision::run(args),
        Command::Synth(args) => synth::run(args),
        Command::Bench(args) => bench::run(args),
    }
}

fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(error) = error.downcast_ref::<clap::Error>() {
        return report_usage(error);
    }
    // `ember ... | head`: the reader has what it wanted.
    if output::is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {}", with_advice(error));
    ExitCode::FAILURE
}

/// The message and its causes, without those that the message before them already ends with.
fn chain_text(error: &anyhow::Error) -> String {
    error
        .chain()
        .map(ToString::to_string)
        .reduce(|text, cause| if text.ends_with(&cause) { text } else { format!("{text}: {cause}") })
        .unwrap_or_default()
}

/// The text of an error, with the flag that helps.
fn with_advice(error: &anyhow::Error) -> String {
    let text = chain_text(error);
    let of_cause = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref() {
        Some(error) => advice::of(error),
        None => cause
            .downcast_ref()
            .and_then(advice::of_backend)
            .or_else(|| cause.downcast_ref().and_then(advice::of_engine)),
    };
    let advice = error.chain().find_map(of_cause);
    match advice {
        // A list of files ends with its last line.
        Some(advice) if text.contains('\n') => format!("{text}\n{advice}"),
        Some(advice) => format!("{text}: {advice}"),
        None => text,
    }
}

/// Prints a message of clap's: help and version on stdout with status 0, mistakes on stderr with status 2.
fn report_usage(error: &clap::Error) -> ExitCode {
    // Nothing is left to try when the terminal is gone.
    let _printed = error.print();
    if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS }
}

/// A mistake in the arguments of `command` that clap's own rules cannot express.
fn usage_error(command: &str, message: impl std::fmt::Display) -> anyhow::Error {
    let mut cli = self::command();
    cli.build();
    let command = cli.find_subcommand_mut(command).expect("named after a variant of Command");
    // It may quote a file, and clap prints it.
    let message = message.to_string();
    command.error(ErrorKind::ValueValidation, visible::visible(&message)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_cause_is_named_once() {
        let cause = || anyhow::anyhow!("no such file");
        assert_eq!(chain_text(&cause().context("cannot open")), "cannot open: no such file");
        assert_eq!(chain_text(&cause().context("cannot open: no such file")), "cannot open: no such file");
    }

    #[test]
    fn every_subcommand_has_examples() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(|text| text.to_string()).unwrap_or_default();
            assert!(help.contains("Examples:\n"), "{} has no examples", command.get_name());
            assert!(command.get_about().is_some(), "{} has no description", command.get_name());
        }
    }
}
