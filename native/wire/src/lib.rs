//! Messages between edge, aether and hostd, and the frames that carry them.

#[allow(clippy::all)]
#[rustfmt::skip]
mod gen;

pub use gen::*;
