//! Burn modules.
