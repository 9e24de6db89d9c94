//! Stop strings of a text that arrives in pieces.

/// Finds the first stop string in a text that arrives in pieces. Text that may be the start of one is held back.
#[derive(Clone, Debug, Default)]
pub(super) struct StopStrings {
    stops: Vec<String>,
    held: String,
    found: Option<usize>,
}

impl StopStrings {
    /// `stops` has no empty string.
    pub fn new(stops: Vec<String>) -> StopStrings {
        StopStrings { stops, ..StopStrings::default() }
    }

    /// The stop string that has been found.
    pub fn found(&self) -> Option<&str> {
        self.found.and_then(|at| self.stops.get(at)).map(String::as_str)
    }

    /// Takes the next piece, and returns the text that is before every stop string.
    pub fn push(&mut self, piece: &str) -> String {
        if self.found.is_some() {
            return String::new();
        }
        if self.stops.is_empty() {
            return piece.to_string();
        }
        self.held.push_str(piece);
        // The one that ends first, so that the result does not depend on the pieces.
        let ends = |(at, stop): (usize, &String)| self.held.find(stop).map(|start| (start + stop.len(), start, at));
        if let Some((_, start, at)) = self.stops.iter().enumerate().filter_map(ends).min() {
            self.found = Some(at);
            let mut text = std::mem::take(&mut self.held);
            text.truncate(start);
            return text;
        }
        let is_start = |from: &usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[*from..]));
        let kept = self.held.char_indices().map(|(at, _)| at).find(is_start).unwrap_or(self.held.len());
        let rest = self.held.split_off(kept);
        std::mem::replace(&mut self.held, rest)
    }

    /// The text that was held back, when no more comes.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}
