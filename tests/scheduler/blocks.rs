//! Block tables and the prefix cache by themselves.
