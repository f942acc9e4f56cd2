//! Flags of generation.
use super::args::positive;
use super::escapes::unescaped;
use anyhow::{Result, anyhow, bail};
use clap::{Args, Parser};
use ember::AnswerOptions;
use ember::sampling::SamplingOptions;

/// Flags of generation; also the names that `/set` takes in a chat.
#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Generation")]
pub struct GenerationArgs {
    /// Tokens to generate at most; an answer that is cut says so [default: what is left of the context]
    #[arg(long, value_name = "N", value_parser = positive)]
    max_tokens: Option<usize>,
    /// End the answer before this text (repeatable); \n is a line break, \t a tab, \\ a backslash, \xHH a byte and \u{H..} a
    /// character
    #[arg(long, value_name = "TEXT", value_parser = stop_text)]
    stop: Vec<String>,
    /// Temperature; 0 always picks the likeliest token [default: the model file's, else its card's (Qwen3), else 0; so for
    /// the other sampling flags]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    temp: Option<f32>,
    /// Choose among the K likeliest tokens only; 0 is off
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    top_k: Option<i32>,
    /// Choose among the likeliest tokens that together have probability P; 1 is off
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// Drop tokens less likely than P times the likeliest; 0 is off
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    min_p: Option<f32>,
    /// Locally typical sampling with mass P; 1 is off
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    typical: Option<f32>,
    /// Divide the logits of recent tokens, of the prompt too, by R; 1 is off
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    repeat_penalty: Option<f32>,
    /// Number of recent tokens that the repeat penalty sees; 0 is off, -1 is all [default: 64]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    repeat_last_n: Option<i32>,
    /// Subtract P from the logits of tokens that the answer so far holds (the prompt does not count, reasoning does)
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    presence_penalty: Option<f32>,
    /// Subtract P from the logits of tokens of the answer so far for each time they occur in it
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    frequency_penalty: Option<f32>,
    /// Add BIAS to the logit of token ID (repeatable)
    #[arg(long, value_name = "ID:BIAS", value_parser = logit_bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Let an answer go on that repeats the same cycle of at most 64 tokens for 1024 tokens, where it would be ended
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    no_loop_check: Option<bool>,
    /// Seed of the random choice; the same seed gives the same text, -1 is another one each time [default: -1]
    #[arg(long, value_name = "SEED", value_parser = seed, allow_negative_numbers = true)]
    seed: Option<Seed>,
}

/// A seed that is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seed {
    Random,
    Fixed(u64),
}

impl GenerationArgs {
    /// The arguments with one of them given anew, as `/set` does.
    ///
    /// # Errors
    /// If there is no such flag or the value does not suit it.
    pub fn with(&self, name: &str, value: &str) -> Result<Self> {
        let mut setting = Setting { args: self.clone() };
        setting.try_update_from([format!("--{name}={value}")]).map_err(|error| {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            anyhow!("{}", line.strip_prefix("error: ").unwrap_or(line))
        })?;
        Ok(setting.args)
    }

    /// The arguments with one of them left out, as `/unset` does.
    ///
    /// # Errors
    /// If there is no such flag.
    pub fn without(&self, name: &str) -> Result<Self> {
        let mut args = self.clone();
        match name {
            "max-tokens" => args.max_tokens = None,
            "stop" => args.stop.clear(),
            "temp" => args.temp = None,
            "top-k" => args.top_k = None,
            "top-p" => args.top_p = None,
            "min-p" => args.min_p = None,
            "typical" => args.typical = None,
            "repeat-penalty" => args.repeat_penalty = None,
            "repeat-last-n" => args.repeat_last_n = None,
            "presence-penalty" => args.presence_penalty = None,
            "frequency-penalty" => args.frequency_penalty = None,
            "logit-bias" => args.logit_bias.clear(),
            "no-loop-check" => args.no_loop_check = None,
            "seed" => args.seed = None,
            _ => bail!("there is no setting {name}"),
        }
        Ok(args)
    }

    /// The options of answers that these flags ask for.
    pub fn options(&self) -> AnswerOptions {
        AnswerOptions {
            sampling: SamplingOptions {
                temperature: self.temp,
                top_k: self.top_k,
                top_p: self.top_p,
                min_p: self.min_p,
                typical_p: self.typical,
                repeat_penalty: self.repeat_penalty,
                repeat_last_n: self.repeat_last_n,
                presence_penalty: self.presence_penalty,
                frequency_penalty: self.frequency_penalty,
                logit_bias: (!self.logit_bias.is_empty()).then(|| self.logit_bias.clone()),
                seed: match self.seed {
                    Some(Seed::Fixed(seed)) => Some(seed),
                    Some(Seed::Random) | None => None,
                },
            },
            max_tokens: self.max_tokens,
            stop: self.stop.clone(),
            no_loop_check: self.no_loop_check.unwrap_or(false),
        }
    }
}

#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Setting {
    #[command(flatten)]
    args: GenerationArgs,
}

fn stop_text(text: &str) -> Result<String, String> {
    match unescaped(text)? {
        text if text.is_empty() => Err("an empty text would end every answer".into()),
        text => Ok(text),
    }
}

fn seed(text: &str) -> Result<Seed, String> {
    match text {
        "-1" => Ok(Seed::Random),
        _ => text.parse().map(Seed::Fixed).map_err(|_| "not a whole number, or -1 for a random seed".into()),
    }
}

fn logit_bias(text: &str) -> Result<(u32, f32), String> {
    let parts = text.split_once(':').and_then(|(id, bias)| Some((id.parse().ok()?, bias.parse().ok()?)));
    parts.ok_or_else(|| "not a token id, a colon and a number, such as 198:-5".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_setting_changes_and_the_others_stay() {
        let args = GenerationArgs { temp: Some(0.5), stop: vec!["a".into()], ..GenerationArgs::default() };
        let changed = args.with("top-k", "40").unwrap();
        assert_eq!(changed, GenerationArgs { top_k: Some(40), ..args.clone() });
        assert_eq!(args.with("stop", "x y").unwrap().stop, ["x y"]);
        assert_eq!(args.with("presence-penalty", "-1.5").unwrap().presence_penalty, Some(-1.5));
        assert_eq!(args.with("logit-bias", "7:-2").unwrap().logit_bias, [(7, -2.0)]);
        let unchecked = args.with("no-loop-check", "true").unwrap();
        assert!(unchecked.options().no_loop_check && !args.options().no_loop_check);
        assert!(unchecked.with("top-k", "1").unwrap().options().no_loop_check);
        assert!(!unchecked.with("no-loop-check", "false").unwrap().options().no_loop_check);
    }

    #[test]
    fn every_setting_has_a_way_back() {
        use clap::CommandFactory;
        let settings = Setting::command();
        for setting in settings.get_arguments() {
            let name = setting.get_long().expect("every setting has a name");
            let value = match name {
                "logit-bias" => "7:-2",
                "no-loop-check" => "true",
                _ => "1",
            };
            let changed = GenerationArgs::default().with(name, value).unwrap();
            assert_ne!(changed, GenerationArgs::default(), "{name}");
            assert_eq!(changed.without(name).unwrap(), GenerationArgs::default(), "{name}");
        }
        let unknown = GenerationArgs::default().without("warmth").unwrap_err().to_string();
        assert_eq!(unknown, "there is no setting warmth");
    }

    #[test]
    fn stop_texts_have_escapes() {
        let stop = |text| GenerationArgs::default().with("stop", text).unwrap().stop;
        assert_eq!(stop(r"\n\nUser:"), ["\n\nUser:"]);
        assert_eq!(stop(r"\\n"), [r"\n"]);
    }

    #[test]
    fn a_seed_of_minus_one_is_random() {
        let seed =
            |text| GenerationArgs::default().with("seed", text).map(|args| args.options().sampling.seed);
        assert_eq!(seed("-1").unwrap(), None);
        assert_eq!(seed("0").unwrap(), Some(0));
        assert_eq!(seed("18446744073709551615").unwrap(), Some(u64::MAX));
        for wrong in ["-2", "1.5", "random"] {
            assert!(seed(wrong).unwrap_err().to_string().contains("-1 for a random seed"), "{wrong}");
        }
    }

    #[test]
    fn wrong_settings_are_explained_in_a_line() {
        let mistake = |name, value| GenerationArgs::default().with(name, value).unwrap_err().to_string();
        assert_eq!(mistake("warmth", "1"), "unexpected argument '--warmth' found");
        assert!(mistake("temp", "hot").starts_with("invalid value 'hot' for '--temp <T>'"));
        assert!(mistake("logit-bias", "7").contains("such as 198:-5"));
        assert!(mistake("stop", "").contains("would end every answer"));
        assert!(mistake("stop", r"\boxed").contains(r"\\ is a backslash"));
    }
}
