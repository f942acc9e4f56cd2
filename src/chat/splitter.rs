//! Assembles a streamed answer: reasoning apart from content, stop strings never shown.
//!
//! Text is held back as long as it may be the start of a stop string or a tag, so what has been sent is final, and the
//! result is the same however the text was cut into pieces. Two filters in a row see to that: the first takes stop
//! strings out of the raw answer, the second parts reasoning from content in what it lets through.

/// Opening and closing tag of the reasoning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasoningTags {
    /// `<think>` or `[THINK]`.
    pub open: String,
    /// `</think>` or `[/THINK]`.
    pub close: String,
}

impl ReasoningTags {
    /// The tags whose closing one `has_token` knows: `<think>` (Qwen3) or `[THINK]` (Ministral 3).
    pub fn of_vocabulary(has_token: impl Fn(&str) -> bool) -> Option<Self> {
        let known = [("<think>", "</think>"), ("[THINK]", "[/THINK]")];
        let (open, close) = known.into_iter().find(|(open, close)| has_token(open) && has_token(close))?;
        Some(Self { open: open.into(), close: close.into() })
    }

    /// True if `prompt` ends inside an open reasoning block, so that the answer starts with reasoning.
    pub fn open_in(&self, prompt: &str) -> bool {
        prompt.trim_end().ends_with(&self.open)
    }
}

/// Text that became certain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextDelta {
    /// Appended to the reasoning.
    pub reasoning: String,
    /// Appended to the answer.
    pub content: String,
}

impl TextDelta {
    /// True if nothing was added.
    pub fn is_empty(&self) -> bool {
        self.reasoning.is_empty() && self.content.is_empty()
    }
}

/// Splits a stream of text pieces into reasoning and answer and stops at stop strings.
///
/// Stop strings are looked for in the whole answer, reasoning and tags included. Tool calls stay in the content.
#[derive(Debug, Clone)]
pub struct AnswerSplitter {
    stops: StopFilter,
    splitter: ReasoningSplitter,
}

impl AnswerSplitter {
    /// A decoder for one answer; `in_reasoning` if the prompt already opened the reasoning. Without `tags` everything
    /// is content. Empty stop strings are ignored.
    pub fn new(tags: Option<ReasoningTags>, in_reasoning: bool, stops: Vec<String>) -> Self {
        let phase = match &tags {
            Some(_) if in_reasoning => Phase::ReasoningStart,
            Some(_) => Phase::Start,
            None => Phase::Content,
        };
        let stops = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        Self {
            stops: StopFilter { stops, held: String::new(), found: None },
            splitter: ReasoningSplitter { tags, phase, held: String::new() },
        }
    }

    /// Takes the next piece of the answer and returns what became certain.
    pub fn push(&mut self, piece: &str) -> TextDelta {
        let text = self.stops.push(piece);
        self.splitter.push(&text, false)
    }

    /// The answer is over: returns all that was held back.
    pub fn finish(&mut self) -> TextDelta {
        let text = self.stops.finish();
        self.splitter.push(&text, true)
    }

    /// The stop string that ended the answer; nothing of it, or after it, is ever returned.
    pub fn stopped_by(&self) -> Option<&str> {
        self.stops.found.map(|index| self.stops.stops[index].as_str())
    }

    /// True if the answer is still inside its reasoning.
    pub fn in_reasoning(&self) -> bool {
        matches!(self.splitter.phase, Phase::ReasoningStart | Phase::Reasoning)
    }
}

/// Lets text through up to the first stop string.
#[derive(Debug, Clone)]
struct StopFilter {
    stops: Vec<String>,
    /// The end of the text so far, if a stop string may have begun in it.
    held: String,
    /// Index of the stop string that was found.
    found: Option<usize>,
}

impl StopFilter {
    fn push(&mut self, piece: &str) -> String {
        if self.found.is_some() {
            return String::new();
        }
        self.held.push_str(piece);
        let first =
            self.stops.iter().enumerate().filter_map(|(i, stop)| Some((self.held.find(stop.as_str())?, i)));
        let certain = match first.min() {
            Some((at, index)) if !self.earlier_may_follow(at) => {
                self.found = Some(index);
                self.held.truncate(at);
                at
            }
            Some((at, _)) => at.min(start_of_any(&self.held, &self.stops)),
            None => start_of_any(&self.held, &self.stops),
        };
        self.held.drain(..certain).collect()
    }

    /// True if a longer stop string that began before `at` is still incomplete.
    fn earlier_may_follow(&self, at: usize) -> bool {
        start_of_any(&self.held, &self.stops) < at
    }

    fn finish(&mut self) -> String {
        let first =
            self.stops.iter().enumerate().filter_map(|(i, stop)| Some((self.held.find(stop.as_str())?, i)));
        if let (None, Some((at, index))) = (self.found, first.min()) {
            self.found = Some(index);
            self.held.truncate(at);
        }
        std::mem::take(&mut self.held)
    }
}

/// The part of the answer that the text is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Before any visible text: an opening tag may follow.
    Start,
    /// Just inside the reasoning: white space after the tag is not part of it.
    ReasoningStart,
    Reasoning,
    /// Just after the reasoning: white space before the answer is not part of it.
    ContentStart,
    Content,
}

/// Parts reasoning from content.
#[derive(Debug, Clone)]
struct ReasoningSplitter {
    tags: Option<ReasoningTags>,
    phase: Phase,
    /// Text not sent yet.
    held: String,
}

impl ReasoningSplitter {
    fn push(&mut self, text: &str, last: bool) -> TextDelta {
        self.held.push_str(text);
        let mut delta = TextDelta::default();
        while self.step(last, &mut delta) {}
        delta
    }

    /// Works on the held text until the phase changes; whether it did.
    fn step(&mut self, last: bool, delta: &mut TextDelta) -> bool {
        let Some(tags) = &self.tags else {
            delta.content.push_str(&std::mem::take(&mut self.held));
            return false;
        };
        match self.phase {
            Phase::Start => {
                let text = self.held.trim_start();
                self.phase = match text.strip_prefix(tags.open.as_str()) {
                    Some(rest) => {
                        self.held = rest.into();
                        Phase::ReasoningStart
                    }
                    None if tags.open.starts_with(text) && !last => return false,
                    None => Phase::Content,
                };
                true
            }
            Phase::ReasoningStart => self.skip_space(Phase::Reasoning),
            Phase::ContentStart => self.skip_space(Phase::Content),
            Phase::Reasoning => match self.held.find(tags.close.as_str()) {
                Some(at) => {
                    delta.reasoning.push_str(self.held[..at].trim_end());
                    self.held.drain(..at + tags.close.len());
                    self.phase = Phase::ContentStart;
                    true
                }
                None => {
                    let certain =
                        if last { self.held.len() } else { start_of_any(&self.held, [&tags.close]) };
                    // White space before the closing tag is dropped, so it waits for what follows.
                    let certain = self.held[..certain].trim_end().len();
                    delta.reasoning.extend(self.held.drain(..certain));
                    false
                }
            },
            Phase::Content => {
                delta.content.push_str(&std::mem::take(&mut self.held));
                false
            }
        }
    }

    fn skip_space(&mut self, next: Phase) -> bool {
        let space = self.held.len() - self.held.trim_start().len();
        self.held.drain(..space);
        if self.held.is_empty() {
            return false;
        }
        self.phase = next;
        true
    }
}

/// Start of the longest end of `text` that is the start, but not the whole, of a marker.
fn start_of_any<'a>(text: &str, markers: impl IntoIterator<Item = &'a String>) -> usize {
    let start_of = |marker: &'a String| {
        let mut tails =
            text.char_indices().map(|(at, _)| at).skip_while(|at| text.len() - at >= marker.len());
        tails.find(|at| marker.starts_with(&text[*at..])).unwrap_or(text.len())
    };
    markers.into_iter().map(start_of).min().unwrap_or(text.len())
}
