//! Each rule by itself, with exact values.
