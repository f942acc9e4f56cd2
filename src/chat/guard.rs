//! Marks the parts of message strings that could form a control token, so that the rendered prompt shows whose they are.
