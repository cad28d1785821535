//! Objects: the byte containers that tables lie in.

pub mod object;
