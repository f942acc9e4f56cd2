//! Statistics of an answer: lines for people, fields for programs.
use ember::engine::MAX_REPEATED;
use ember::sampling::{SamplingParams, Source};
use ember::{AnswerResult, Ending};
use serde::Serialize;
use serde_json::{Map, Value};
use std::time::Duration;

/// The name of a setting's source on the command line, where a flag is what asks.
pub fn source_name(source: Source) -> &'static str {
    match source {
        Source::Request => "flag",
        Source::File | Source::Card | Source::Default => source.name(),
    }
}

/// An ending for people, in a few words.
fn ending_text(ending: &Ending) -> String {
    match ending {
        Ending::EndOfGeneration => "the model ended its answer".into(),
        Ending::StopString(stop) => format!("stop string {stop:?}"),
        Ending::MaxTokens | Ending::ContextFull => "cut off".into(),
        Ending::Repetition { .. } => "ended in a repetition".into(),
        Ending::Cancelled => "interrupted".into(),
    }
}

/// A line about an answer that is not as long as the model would have made it, with the flag that changes that.
pub fn warning(result: &AnswerResult) -> Option<String> {
    let n = result.tokens.len();
    match &result.ending {
        Ending::MaxTokens => {
            Some(format!("warning: the answer is cut off after {n} tokens, as --max-tokens asks"))
        }
        Ending::ContextFull => Some(format!(
            "warning: the answer is cut off after {n} tokens: the context of {} tokens is full (--ctx-size)",
            result.context_size
        )),
        Ending::Repetition { cycle } => {
            let cycle = if *cycle == 1 { "token".to_owned() } else { format!("{cycle} tokens") };
            Some(format!(
                "warning: the answer is ended after {n} tokens: it repeated the same {cycle} for the last \
                 {MAX_REPEATED} of them (--no-loop-check lets it go on)"
            ))
        }
        Ending::EndOfGeneration | Ending::StopString(_) | Ending::Cancelled => None,
    }
}

/// The lines that follow an answer on stderr.
pub fn text(result: &AnswerResult) -> String {
    let rate = |rate: Option<f64>| rate.map(|rate| format!(", {rate:.1} tokens/s")).unwrap_or_default();
    format!(
        "prompt: {} tokens, {} cached{}\nanswer: {} tokens{}\nsampling: {}\n{}",
        result.prompt_tokens,
        result.cached_tokens,
        rate(result.prefill_rate()),
        result.tokens.len(),
        rate(result.decode_rate()),
        result.sampling.describe(source_name),
        warning(result).unwrap_or_else(|| format!("stopped: {}", ending_text(&result.ending))),
    )
}

/// One line for people, after an answer in a chat.
pub fn line(result: &AnswerResult) -> String {
    let rate = result.decode_rate().map(|rate| format!(" at {rate:.1} tokens/s")).unwrap_or_default();
    format!(
        "[prompt {} tokens, {} cached; answer {} tokens{rate}; {}]",
        result.prompt_tokens,
        result.cached_tokens,
        result.tokens.len(),
        ending_text(&result.ending),
    )
}

/// The object that `--json` prints.
#[derive(Serialize)]
pub struct AnswerJson<'a> {
    text: &'a str,
    reasoning: Option<&'a str>,
    finish_reason: &'static str,
    stop_string: Option<&'a str>,
    /// The limit that cut the answer: `max_tokens` or `context`.
    limit: Option<&'static str>,
    prompt_tokens: usize,
    cached_tokens: usize,
    generated_tokens: usize,
    /// Tokens of each image; they are among the prompt's.
    image_tokens: &'a [usize],
    sampling: &'a SamplingParams,
    /// Who set each of them: `flag`, `file`, `card` or `default`.
    sampling_sources: Map<String, Value>,
    timings: Timings,
}

/// Milliseconds and tokens per second; a rate is null when nothing was run to measure it on.
#[derive(Serialize)]
struct Timings {
    load_ms: f64,
    image_ms: f64,
    prompt_ms: f64,
    prompt_per_second: Option<f64>,
    generation_ms: f64,
    generation_per_second: Option<f64>,
}

impl<'a> AnswerJson<'a> {
    /// The object of an answer.
    pub fn new(result: &'a AnswerResult, load_time: Duration) -> Self {
        let stop_string = match &result.ending {
            Ending::StopString(stop) => Some(stop.as_str()),
            _ => None,
        };
        let sources = result.sampling.sources();
        Self {
            text: &result.text,
            reasoning: (!result.reasoning.is_empty()).then_some(&result.reasoning),
            finish_reason: result.ending.finish_reason(),
            stop_string,
            limit: result.ending.limit(),
            prompt_tokens: result.prompt_tokens,
            cached_tokens: result.cached_tokens,
            generated_tokens: result.tokens.len(),
            image_tokens: &result.image_tokens,
            sampling: &result.sampling.params,
            sampling_sources: sources
                .map(|(name, source)| (name.to_owned(), source_name(source).into()))
                .collect(),
            timings: Timings {
                load_ms: milliseconds(load_time),
                image_ms: milliseconds(result.image_time),
                prompt_ms: milliseconds(result.prefill_time),
                prompt_per_second: result.prefill_rate(),
                generation_ms: milliseconds(result.decode_time),
                generation_per_second: result.decode_rate(),
            },
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use ember::sampling::{ResolvedSampling, SamplingOptions};

    fn result(tokens: usize, decode_steps: usize, ending: Ending) -> AnswerResult {
        let asked = SamplingOptions { top_k: Some(5), ..SamplingOptions::default() };
        let of_card = SamplingOptions { temperature: Some(0.5), ..SamplingOptions::default() };
        let layers = [(Source::Request, &asked), (Source::Card, &of_card)];
        let mut sampling = ResolvedSampling::new(&layers).unwrap();
        sampling.params.seed = Some(7);
        AnswerResult {
            text: "hi".into(),
            reasoning: String::new(),
            ending,
            tokens: vec![5; tokens],
            prompt_tokens: 30,
            cached_tokens: 10,
            image_tokens: Vec::new(),
            max_tokens: Some(100),
            context_size: 4096,
            sampling,
            image_time: Duration::from_millis(9),
            prefill_time: Duration::from_millis(500),
            decode_time: Duration::from_secs(2),
            prefilled_tokens: 20,
            decode_steps,
        }
    }

    #[test]
    fn rates_count_the_steps_that_were_run() {
        let ended = result(4, 4, Ending::EndOfGeneration);
        assert_eq!(
            text(&ended),
            "prompt: 30 tokens, 10 cached, 40.0 tokens/s\nanswer: 4 tokens, 2.0 tokens/s\n\
             sampling: temperature 0.5 (card), top_k 5 (flag), seed 7\nstopped: the model ended its answer"
        );
        assert_eq!(
            line(&ended),
            "[prompt 30 tokens, 10 cached; answer 4 tokens at 2.0 tokens/s; the model ended its answer]"
        );
        assert!(text(&result(1, 0, Ending::MaxTokens)).contains("answer: 1 tokens\n"));
    }

    #[test]
    fn an_answer_that_the_model_did_not_end_is_not_to_be_mistaken() {
        for (ending, expected) in [
            (Ending::MaxTokens, "warning: the answer is cut off after 9 tokens, as --max-tokens asks"),
            (
                Ending::ContextFull,
                "warning: the answer is cut off after 9 tokens: the context of 4096 tokens is full (--ctx-size)",
            ),
            (
                Ending::Repetition { cycle: 3 },
                "warning: the answer is ended after 9 tokens: it repeated the same 3 tokens for the last 1024 of \
                 them (--no-loop-check lets it go on)",
            ),
        ] {
            let result = result(9, 8, ending);
            assert_eq!(warning(&result).as_deref(), Some(expected));
            assert!(text(&result).ends_with(&format!("\n{expected}")), "{}", text(&result));
        }
        assert_eq!(warning(&result(9, 8, Ending::EndOfGeneration)), None);
    }

    #[test]
    fn json_has_every_field() {
        let stopped = result(3, 2, Ending::StopString("END".into()));
        let json = serde_json::to_value(AnswerJson::new(&stopped, Duration::from_millis(7))).unwrap();
        let expected = serde_json::json!({
            "text": "hi", "reasoning": null, "finish_reason": "stop", "stop_string": "END", "limit": null,
            "prompt_tokens": 30, "cached_tokens": 10, "generated_tokens": 3, "image_tokens": [],
            "sampling": {
                "temperature": 0.5, "top_k": 5, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0,
                "repeat_penalty": 1.0, "repeat_last_n": 64, "presence_penalty": 0.0, "frequency_penalty": 0.0,
                "logit_bias": [], "seed": 7,
            },
            "sampling_sources": {
                "temperature": "card", "top_k": "flag", "top_p": "default", "min_p": "default",
                "typical_p": "default", "repeat_penalty": "default", "repeat_last_n": "default",
                "presence_penalty": "default", "frequency_penalty": "default", "logit_bias": "default",
            },
            "timings": {
                "load_ms": 7.0, "image_ms": 9.0, "prompt_ms": 500.0, "prompt_per_second": 40.0,
                "generation_ms": 2000.0, "generation_per_second": 1.0,
            },
        });
        assert_eq!(json, expected);
        for (ending, reason, limit) in [
            (Ending::EndOfGeneration, "stop", Value::Null),
            (Ending::MaxTokens, "length", "max_tokens".into()),
            (Ending::ContextFull, "length", "context".into()),
            (Ending::Repetition { cycle: 2 }, "repetition", Value::Null),
            (Ending::Cancelled, "interrupted", Value::Null),
        ] {
            let result = result(3, 2, ending);
            let json = serde_json::to_value(AnswerJson::new(&result, Duration::ZERO)).unwrap();
            assert_eq!((&json["finish_reason"], &json["limit"]), (&reason.into(), &limit));
        }
    }
}
