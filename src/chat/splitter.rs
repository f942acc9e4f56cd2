//! Assembles a streamed answer: reasoning apart from content, stop strings never shown.
//!
//! Text is held back as long as it may be the start of a stop string or a tag, so what has been sent is final, and the
//! result is the same however the text was cut into pieces. Two filters in a row see to that: the first takes stop
//! strings out of the raw answer, the second parts reasoning from content in what it lets through.

use std::ops::Range;

/// A text that opens or closes the reasoning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasoningTag {
    /// `<think>`, `</think>`, `[THINK]` or `[/THINK]`.
    pub text: String,
    /// The token that it is. The same letters in several tokens are then ordinary text; without a token, they are the tag.
    pub token: Option<u32>,
}

impl From<&str> for ReasoningTag {
    /// A tag that is no token.
    fn from(text: &str) -> Self {
        Self { text: text.into(), token: None }
    }
}

/// Opening and closing tag of the reasoning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasoningTags {
    /// `<think>` or `[THINK]`.
    pub open: ReasoningTag,
    /// `</think>` or `[/THINK]`.
    pub close: ReasoningTag,
}

impl ReasoningTags {
    /// The tags of a model, `<think>` (Qwen3) or `[THINK]` (Ministral 3): those that its template writes, or else those
    /// that are tokens of its vocabulary.
    pub fn of_model(token_id: impl Fn(&str) -> Option<u32>, template: &str) -> Option<Self> {
        let pairs = [("<think>", "</think>"), ("[THINK]", "[/THINK]")];
        let written = |(open, close): &(&str, &str)| template.contains(open) && template.contains(close);
        let known = |(open, close): &(&str, &str)| token_id(open).is_some() && token_id(close).is_some();
        let (open, close) = pairs.into_iter().find(written).or_else(|| pairs.into_iter().find(known))?;
        let tag = |text: &str| ReasoningTag { text: text.into(), token: token_id(text) };
        Some(Self { open: tag(open), close: tag(close) })
    }

    /// True if `prompt` ends inside an open reasoning block, so that the answer starts with reasoning.
    pub fn open_in(&self, prompt: &str) -> bool {
        prompt.trim_end().ends_with(&self.open.text)
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

    /// Adds the text that follows.
    pub fn append(&mut self, next: &Self) {
        self.reasoning.push_str(&next.reasoning);
        self.content.push_str(&next.content);
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
            stops: StopFilter::new(stops),
            splitter: ReasoningSplitter { tags, phase, held: String::new() },
        }
    }

    /// Takes the next piece of the answer and returns what became certain. A tag that is a token comes through
    /// [`push_tag`](Self::push_tag) instead.
    pub fn push(&mut self, piece: &str) -> TextDelta {
        self.stops.push(piece);
        self.let_through()
    }

    /// True if the token is a tag.
    pub fn is_tag(&self, token: u32) -> bool {
        self.splitter.tag_of(token).is_some()
    }

    /// Takes the next token of the answer, if it [is a tag](Self::is_tag), and returns what became certain.
    pub fn push_tag(&mut self, token: u32) -> TextDelta {
        if let Some(tag) = self.splitter.tag_of(token) {
            self.stops.push_tag(tag.clone());
        }
        self.let_through()
    }

    fn let_through(&mut self) -> TextDelta {
        let mut delta = TextDelta::default();
        for piece in self.stops.certain() {
            self.splitter.push(piece, &mut delta);
        }
        delta
    }

    /// The answer is over: returns all that was held back.
    pub fn finish(&mut self) -> TextDelta {
        let mut delta = TextDelta::default();
        for piece in self.stops.finish() {
            self.splitter.push(piece, &mut delta);
        }
        self.splitter.finish(&mut delta);
        delta
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

/// A stretch of the answer.
#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    /// A tag that came as one token.
    Tag(ReasoningTag),
}

/// Lets text through up to the first stop string.
#[derive(Debug, Clone)]
struct StopFilter {
    stops: Vec<String>,
    /// The end of the text so far, if a stop string may have begun in it.
    held: String,
    /// The tags that came as tokens, with where they stand in `held`.
    tags: Vec<(Range<usize>, ReasoningTag)>,
    /// Index of the stop string that was found.
    found: Option<usize>,
}

impl StopFilter {
    fn new(stops: Vec<String>) -> Self {
        Self { stops, held: String::new(), tags: Vec::new(), found: None }
    }

    fn push(&mut self, piece: &str) {
        if self.found.is_none() {
            self.held.push_str(piece);
        }
    }

    fn push_tag(&mut self, tag: ReasoningTag) {
        if self.found.is_none() {
            let start = self.held.len();
            self.held.push_str(&tag.text);
            self.tags.push((start..self.held.len(), tag));
        }
    }

    /// Takes out what no stop string can begin in.
    fn certain(&mut self) -> Vec<Piece> {
        if self.found.is_some() {
            return Vec::new();
        }
        let begun = start_of_any(&self.held, &self.stops);
        match self.first() {
            Some((at, index)) if begun >= at => self.stop(at, index),
            // A longer stop string that began earlier is still incomplete.
            Some((at, _)) => self.release(at.min(begun)),
            None => self.release(begun),
        }
    }

    /// Takes out the rest.
    fn finish(&mut self) -> Vec<Piece> {
        match (self.found, self.first()) {
            (None, Some((at, index))) => self.stop(at, index),
            _ => self.release(self.held.len()),
        }
    }

    /// Where the first stop string is, and which.
    fn first(&self) -> Option<(usize, usize)> {
        let found = |(index, stop): (usize, &String)| Some((self.held.find(stop.as_str())?, index));
        self.stops.iter().enumerate().filter_map(found).min()
    }

    fn stop(&mut self, at: usize, index: usize) -> Vec<Piece> {
        self.found = Some(index);
        self.held.truncate(at);
        // What is left of a tag is text.
        self.tags.retain(|(place, _)| place.end <= at);
        self.release(at)
    }

    /// Takes out the text up to `end`, or up to the tag that `end` would cut.
    fn release(&mut self, end: usize) -> Vec<Piece> {
        let cut = self.tags.iter().find(|(place, _)| place.start < end && end < place.end);
        let end = cut.map_or(end, |(place, _)| place.start);
        let mut pieces = Vec::new();
        let mut at = 0;
        let whole = self.tags.partition_point(|(place, _)| place.end <= end);
        for (place, tag) in self.tags.drain(..whole) {
            pieces.push(Piece::Text(self.held[at..place.start].to_owned()));
            pieces.push(Piece::Tag(tag));
            at = place.end;
        }
        pieces.push(Piece::Text(self.held[at..end].to_owned()));
        self.held.drain(..end);
        for (place, _) in &mut self.tags {
            *place = place.start - end..place.end - end;
        }
        pieces
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
    /// The tag that is this token.
    fn tag_of(&self, token: u32) -> Option<&ReasoningTag> {
        let tags = self.tags.as_ref()?;
        [&tags.open, &tags.close].into_iter().find(|tag| tag.token == Some(token))
    }

    fn push(&mut self, piece: Piece, delta: &mut TextDelta) {
        match piece {
            Piece::Text(text) => self.held.push_str(&text),
            Piece::Tag(tag) => self.obey(&tag, delta),
        }
        while self.step(false, delta) {}
    }

    fn finish(&mut self, delta: &mut TextDelta) {
        while self.step(true, delta) {}
    }

    /// A tag that is a token opens or closes the reasoning, or is ordinary text where it can do neither.
    fn obey(&mut self, tag: &ReasoningTag, delta: &mut TextDelta) {
        let opens = self.tags.as_ref().is_some_and(|tags| tags.open == *tag);
        match (self.phase, opens) {
            (Phase::Start, true) if self.held.trim_start().is_empty() => {
                self.held.clear();
                self.phase = Phase::ReasoningStart;
            }
            (Phase::ReasoningStart | Phase::Reasoning, false) => {
                delta.reasoning.push_str(self.held.trim_end());
                self.held.clear();
                self.phase = Phase::ContentStart;
            }
            _ => self.held.push_str(&tag.text),
        }
    }

    /// Works on the held text until the phase changes; whether it did.
    fn step(&mut self, last: bool, delta: &mut TextDelta) -> bool {
        let Some(tags) = &self.tags else {
            delta.content.push_str(&std::mem::take(&mut self.held));
            return false;
        };
        // The letters of a tag that is a token are ordinary text.
        let spelled = |tag: &ReasoningTag| tag.token.is_none().then(|| tag.text.clone());
        match self.phase {
            Phase::Start => {
                let text = self.held.trim_start();
                let open = spelled(&tags.open);
                let rest = open.as_ref().and_then(|open| text.strip_prefix(open.as_str()));
                self.phase = match rest {
                    Some(rest) => {
                        self.held = rest.into();
                        Phase::ReasoningStart
                    }
                    None if open.unwrap_or_default().starts_with(text) && !last => return false,
                    None => Phase::Content,
                };
                true
            }
            Phase::ReasoningStart => self.skip_space(Phase::Reasoning),
            Phase::ContentStart => self.skip_space(Phase::Content),
            Phase::Reasoning => {
                let close = spelled(&tags.close);
                if let Some((close, at)) =
                    close.as_ref().and_then(|close| Some((close, self.held.find(close)?)))
                {
                    delta.reasoning.push_str(self.held[..at].trim_end());
                    self.held.drain(..at + close.len());
                    self.phase = Phase::ContentStart;
                    return true;
                }
                let certain = if last { self.held.len() } else { start_of_any(&self.held, &close) };
                // White space before the closing tag is dropped, so it waits for what follows.
                let certain = self.held[..certain].trim_end().len();
                delta.reasoning.extend(self.held.drain(..certain));
                false
            }
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
