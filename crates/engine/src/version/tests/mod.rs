//! Scenarios over manifests and trees that their users above do not reach:
//! each bound from both sides, each answer by itself.

mod manifest;
mod tree;
