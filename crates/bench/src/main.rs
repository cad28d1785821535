//! The comparison.
fn main() {}
