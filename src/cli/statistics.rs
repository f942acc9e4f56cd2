//! Statistics of an answer: lines for people, fields for programs.
use ember::sampling::SamplingOptions;
use ember::{AnswerResult, Ending};
use serde::Serialize;
use std::time::Duration;

/// The name of an ending in JSON.
fn ending_name(ending: &Ending) -> &'static str {
    match ending {
        Ending::EndOfGeneration => "end_of_generation",
        Ending::StopString(_) => "stop_string",
        Ending::MaxTokens => "max_tokens",
        Ending::ContextFull => "context_full",
        Ending::Cancelled => "interrupted",
    }
}

/// An ending for people, with the flag that changes it.
fn ending_text(result: &AnswerResult) -> String {
    match &result.ending {
        Ending::EndOfGeneration => "the model ended its answer".into(),
        Ending::StopString(stop) => format!("stop string {stop:?}"),
        Ending::MaxTokens => format!("{} tokens generated (--max-tokens)", result.max_tokens),
        Ending::ContextFull => "the context is full (--ctx-size)".into(),
        Ending::Cancelled => "interrupted".into(),
    }
}

/// The lines that follow an answer on stderr; `sampling` describes the settings in force.
pub fn text(result: &AnswerResult, sampling: &str) -> String {
    let rate = |rate: Option<f64>| rate.map(|rate| format!(", {rate:.1} tokens/s")).unwrap_or_default();
    format!(
        "prompt: {} tokens, {} cached{}\nanswer: {} tokens{}\nsampling: {sampling}\nstopped: {}",
        result.prompt_tokens,
        result.cached_tokens,
        rate(result.prefill_rate()),
        result.tokens.len(),
        rate(result.decode_rate()),
        ending_text(result),
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
        ending_text(result),
    )
}

/// The object that `--json` prints.
#[derive(Serialize)]
pub struct AnswerJson<'a> {
    text: &'a str,
    reasoning: Option<&'a str>,
    finish_reason: &'static str,
    stop_string: Option<&'a str>,
    prompt_tokens: usize,
    cached_tokens: usize,
    generated_tokens: usize,
    /// Tokens of each image; they are among the prompt's.
    image_tokens: &'a [usize],
    sampling: &'a SamplingOptions,
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
        Self {
            text: &result.text,
            reasoning: (!result.reasoning.is_empty()).then_some(&result.reasoning),
            finish_reason: ending_name(&result.ending),
            stop_string,
            prompt_tokens: result.prompt_tokens,
            cached_tokens: result.cached_tokens,
            generated_tokens: result.tokens.len(),
            image_tokens: &result.image_tokens,
            sampling: &result.sampling,
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

    fn result(tokens: usize, decode_steps: usize, ending: Ending) -> AnswerResult {
        AnswerResult {
            text: "hi".into(),
            reasoning: String::new(),
            ending,
            tokens: vec![5; tokens],
            prompt_tokens: 30,
            cached_tokens: 10,
            image_tokens: Vec::new(),
            max_tokens: 100,
            sampling: SamplingOptions::default(),
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
            text(&ended, "greedy"),
            "prompt: 30 tokens, 10 cached, 40.0 tokens/s\nanswer: 4 tokens, 2.0 tokens/s\n\
             sampling: greedy\nstopped: the model ended its answer"
        );
        assert_eq!(
            line(&ended),
            "[prompt 30 tokens, 10 cached; answer 4 tokens at 2.0 tokens/s; the model ended its answer]"
        );
        assert!(text(&result(1, 0, Ending::MaxTokens), "greedy").contains("answer: 1 tokens\n"));
    }

    #[test]
    fn json_has_every_field() {
        let stopped = result(3, 2, Ending::StopString("END".into()));
        let json = serde_json::to_value(AnswerJson::new(&stopped, Duration::from_millis(7))).unwrap();
        let expected = serde_json::json!({
            "text": "hi", "reasoning": null, "finish_reason": "stop_string", "stop_string": "END",
            "prompt_tokens": 30, "cached_tokens": 10, "generated_tokens": 3, "image_tokens": [],
            "sampling": stopped.sampling,
            "timings": {
                "load_ms": 7.0, "image_ms": 9.0, "prompt_ms": 500.0, "prompt_per_second": 40.0,
                "generation_ms": 2000.0, "generation_per_second": 1.0,
            },
        });
        assert_eq!(json, expected);
    }
}
