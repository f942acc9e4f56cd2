//! Chat messages and templates.
