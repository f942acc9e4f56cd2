//! What is said about an answer afterwards: lines for people, fields for programs.
use super::turn::{Ending, Turn};
use super::vision_model::EncodedImages;
use ember::engine::{FinishReason, Generation};
use serde::Serialize;
use std::time::Duration;

impl Ending {
    /// The name in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::EndOfGeneration => "end_of_generation",
            Self::StopString(_) => "stop_string",
            Self::MaxTokens => "max_tokens",
            Self::ContextFull => "context_full",
            Self::Interrupted => "interrupted",
        }
    }

    /// For people, with what can be done about it.
    fn sentence(&self, max_tokens: usize) -> String {
        match self {
            Self::EndOfGeneration => "the model ended its answer".into(),
            Self::StopString(stop) => format!("stop string {stop:?}"),
            Self::MaxTokens => format!("{max_tokens} tokens generated (--max-tokens)"),
            Self::ContextFull => "the context is full (--ctx-size)".into(),
            Self::Interrupted => "interrupted".into(),
        }
    }
}

/// The lines that follow an answer on stderr.
pub fn text(turn: &Turn, sampling: &str, max_tokens: usize) -> String {
    let generation = &turn.generation;
    let rate = |rate: Option<f64>| rate.map(|rate| format!(", {rate:.1} tokens/s")).unwrap_or_default();
    format!(
        "prompt: {} tokens, {} cached{}\nanswer: {} tokens{}\nsampling: {sampling}\nstopped: {}",
        generation.prompt_tokens,
        generation.cached_tokens,
        rate(prefill_rate(generation)),
        generation.tokens.len(),
        rate(decode_rate(generation)),
        turn.ending.sentence(max_tokens),
    )
}

/// One line for people, after an answer in a chat.
pub fn line(turn: &Turn, max_tokens: usize) -> String {
    let generation = &turn.generation;
    let rate = decode_rate(generation).map(|rate| format!(" at {rate:.1} tokens/s")).unwrap_or_default();
    format!(
        "[prompt {} tokens, {} cached; answer {} tokens{rate}; {}]",
        generation.prompt_tokens,
        generation.cached_tokens,
        generation.tokens.len(),
        turn.ending.sentence(max_tokens),
    )
}

/// The object that `--json` prints.
#[derive(Serialize)]
pub struct TurnJson<'a, S> {
    text: &'a str,
    reasoning: Option<&'a str>,
    finish_reason: &'static str,
    stop_string: Option<&'a str>,
    prompt_tokens: usize,
    cached_tokens: usize,
    generated_tokens: usize,
    /// Of each image; they are among the prompt's.
    image_tokens: Vec<usize>,
    sampling: S,
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

impl<'a, S> TurnJson<'a, S> {
    /// The object for an answer; `sampling` is the settings in force.
    pub fn new(turn: &'a Turn, sampling: S, load_time: Duration, images: &EncodedImages) -> Self {
        let generation = &turn.generation;
        let stop_string = match &turn.ending {
            Ending::StopString(stop) => Some(stop.as_str()),
            _ => None,
        };
        Self {
            text: &turn.text,
            reasoning: (!turn.reasoning.is_empty()).then_some(&turn.reasoning),
            finish_reason: turn.ending.name(),
            stop_string,
            prompt_tokens: generation.prompt_tokens,
            cached_tokens: generation.cached_tokens,
            generated_tokens: generation.tokens.len(),
            image_tokens: images.token_counts(),
            sampling,
            timings: Timings {
                load_ms: milliseconds(load_time),
                image_ms: milliseconds(images.time),
                prompt_ms: milliseconds(generation.prefill_time),
                prompt_per_second: prefill_rate(generation),
                generation_ms: milliseconds(generation.decode_time),
                generation_per_second: decode_rate(generation),
            },
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn prefill_rate(generation: &Generation) -> Option<f64> {
    // Stopped before the first token: how much of the prompt was run is not known.
    if generation.finish_reason == FinishReason::Stopped && generation.tokens.is_empty() {
        return None;
    }
    per_second(generation.prompt_tokens - generation.cached_tokens, generation.prefill_time)
}

/// The prompt's last row gives the first token, so `n` tokens take `n - 1` steps, and an end token one more.
fn decode_rate(generation: &Generation) -> Option<f64> {
    let ended = usize::from(generation.finish_reason == FinishReason::EndOfGeneration);
    per_second((generation.tokens.len() + ended).saturating_sub(1), generation.decode_time)
}

fn per_second(steps: usize, time: Duration) -> Option<f64> {
    (steps > 0 && !time.is_zero()).then(|| steps as f64 / time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(tokens: usize, finish_reason: FinishReason, ending: Ending) -> Turn {
        let generation = Generation {
            tokens: vec![5; tokens],
            finish_reason,
            prompt_tokens: 30,
            cached_tokens: 10,
            prefill_time: Duration::from_millis(500),
            decode_time: Duration::from_secs(2),
        };
        Turn { text: "hi".into(), reasoning: String::new(), ending, generation }
    }

    #[test]
    fn rates_count_the_steps_that_were_run() {
        let ended = turn(4, FinishReason::EndOfGeneration, Ending::EndOfGeneration);
        assert_eq!(
            text(&ended, "greedy", 100),
            "prompt: 30 tokens, 10 cached, 40.0 tokens/s\nanswer: 4 tokens, 2.0 tokens/s\n\
             sampling: greedy\nstopped: the model ended its answer"
        );
        assert_eq!(
            line(&ended, 100),
            "[prompt 30 tokens, 10 cached; answer 4 tokens at 2.0 tokens/s; the model ended its answer]"
        );
        let single = turn(1, FinishReason::MaxTokens, Ending::MaxTokens);
        assert!(text(&single, "greedy", 1).contains("answer: 1 tokens\n"));
    }

    #[test]
    fn json_has_every_field() {
        let stopped = turn(3, FinishReason::Stopped, Ending::StopString("END".into()));
        let images = EncodedImages { time: Duration::from_millis(9), ..EncodedImages::default() };
        let json = TurnJson::new(&stopped, "greedy", Duration::from_millis(7), &images);
        let json = serde_json::to_value(json).unwrap();
        let expected = serde_json::json!({
            "text": "hi", "reasoning": null, "finish_reason": "stop_string", "stop_string": "END",
            "prompt_tokens": 30, "cached_tokens": 10, "generated_tokens": 3, "image_tokens": [],
            "sampling": "greedy",
            "timings": {
                "load_ms": 7.0, "image_ms": 9.0, "prompt_ms": 500.0, "prompt_per_second": 40.0,
                "generation_ms": 2000.0, "generation_per_second": 1.0,
            },
        });
        assert_eq!(json, expected);
    }
}
