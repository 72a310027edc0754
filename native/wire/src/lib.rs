//! Messages between edge, aether and hostd, and the frames that carry them.

pub mod buffer;
pub mod frame;
#[allow(clippy::all)]
#[rustfmt::skip]
mod gen;

pub use gen::*;
