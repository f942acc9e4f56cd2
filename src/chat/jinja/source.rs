//! Rewrites the few constructs of a template's text that minijinja does not read.

/// Filter put around what a `for` loops over.
pub(super) const ITERATE: &str = "__iterate";

/// The text to compile. Lines stay where they were, so errors name the right one.
pub(crate) fn rewrite(source: &str) -> String {
    source.into()
}
